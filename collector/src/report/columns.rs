//! Prints rows in aligned columns, as wide as the terminal is.

use super::By;
use super::look::{Look, padded, width_of, without_beginning, without_middle};
use super::table::Row;
use crate::numbers::share;

/// The widest that a column becomes which others follow: names of templates can be longer than any
/// terminal, and what follows need not line up with those.
const WIDEST_NAME: usize = 60;
const WIDEST_ORIGIN: usize = 40;

/// Prints the rows below their headings; `amount` says in words how much of the whole a row has.
pub(super) fn print(
    out: &mut String,
    rows: &[Row],
    by: By,
    whole: u64,
    look: Look,
    amount: impl Fn(u64) -> String,
) {
    let threads = has_one_amount(by);
    let (name, origin) = headings(by);
    let widths = Widths::of(rows, by, look.width);
    let numbers = |ns: u64| {
        let text = format!("{:>9}  {:>7}", amount(ns), share(ns, whole));
        look.part(&text, ns, whole)
    };
    let mut line = |own: &str, total: &str, last: &str| {
        let line = match threads {
            true => format!("{total}  {last}"),
            false => format!("{own}  {total}  {last}"),
        };
        out.push_str(line.trim_end());
        out.push('\n');
    };
    let total = if threads { "AMOUNT" } else { "TOTAL" };
    line(
        &look.heading(&format!("{:>18}", "SELF")),
        &look.heading(&format!("{total:>18}")),
        &look.heading(widths.joined(name, origin, Look::default()).trim_end()),
    );
    for row in rows {
        let (own, total) = (numbers(row.own_ns), numbers(row.total_ns));
        line(&own, &total, &widths.joined(&row.name, &row.origin, look));
    }
}

/// Whether what is in a row itself and what is in it at all are the same.
const fn has_one_amount(by: By) -> bool {
    matches!(
        by,
        By::Own | By::Thread | By::Process | By::Cgroup | By::Label
    )
}

/// What a row's name and its origin are.
pub(crate) const fn headings(by: By) -> (&'static str, &'static str) {
    match by {
        By::Function => ("FUNCTION", "MODULE"),
        By::Own => ("FUNCTION", "CALLED"),
        By::Line => ("FUNCTION", "LINE"),
        By::Module => ("MODULE", "PATH"),
        By::Thread => ("THREAD", "PROCESS"),
        By::Process => ("PROCESS", "COMMAND"),
        By::Cgroup => ("CONTAINER", "CGROUP"),
        By::Label => ("LABELS", ""),
    }
}

/// Of the two columns that have words.
struct Widths {
    name: usize,
    origin: usize,
    origin_first: bool,
    /// Whether the last column ends where the terminal does.
    fitted: bool,
}

impl Widths {
    fn of(rows: &[Row], by: By, width: Option<usize>) -> Self {
        let widest = |column: fn(&Row) -> &str, heading: &str| {
            let widths = rows.iter().map(|row| width_of(column(row)));
            widths.max().unwrap_or(0).max(heading.len())
        };
        let (name, origin) = headings(by);
        let name = widest(|row| &row.name, name);
        let origin = widest(|row| &row.origin, origin);
        let origin_first = by == By::Function;
        let Some(width) = width else {
            return Self {
                name: name.min(WIDEST_NAME),
                origin: origin.min(WIDEST_ORIGIN),
                origin_first,
                fitted: false,
            };
        };
        let numbers = if has_one_amount(by) { 20 } else { 40 };
        let rest = width.saturating_sub(numbers + 2).max(16);
        let (name, origin) = if origin_first {
            // Names of functions say more than those of binaries.
            let origin = origin.min((rest / 3).max(rest.saturating_sub(name)));
            (rest - origin.min(rest), origin)
        } else {
            let name = name.min((rest / 2).max(rest.saturating_sub(origin)));
            (name, rest - name.min(rest))
        };
        Self {
            name,
            origin,
            origin_first,
            fitted: true,
        }
    }

    fn joined(&self, name: &str, origin: &str, look: Look) -> String {
        let (name, origin) = match self.fitted {
            true => (
                without_middle(name, self.name),
                without_beginning(origin, self.origin),
            ),
            false => (name.into(), origin.into()),
        };
        match self.origin_first {
            true => {
                let origin = padded(&origin, self.origin);
                format!("{}  {name}", look.aside(&origin))
            }
            false => format!("{}  {}", padded(&name, self.name), look.aside(&origin)),
        }
    }
}
