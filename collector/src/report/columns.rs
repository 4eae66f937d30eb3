//! Prints rows in aligned columns.

use super::By;
use super::table::Row;
use crate::numbers::share;
use std::fmt::Write as _;

/// Prints the rows below their headings; `amount` says in words how much of the whole a row has.
pub(super) fn print(
    out: &mut String,
    rows: &[Row],
    by: By,
    whole: u64,
    amount: impl Fn(u64) -> String,
) {
    let threads = matches!(by, By::Thread | By::Process);
    let (name, origin) = match by {
        By::Function => ("FUNCTION", "MODULE"),
        By::Line => ("FUNCTION", "LINE"),
        By::Module => ("MODULE", "PATH"),
        By::Thread => ("THREAD", "PROCESS"),
        By::Process => ("PROCESS", "COMMAND"),
    };
    let widest = |column: fn(&Row) -> &str| {
        let widths = rows.iter().map(|row| column(row).chars().count());
        widths.max().unwrap_or(0)
    };
    // Names of templates can be longer than any terminal: the column after them need not line up
    // with those.
    let name_width = widest(|row| &row.name).clamp(name.len(), 60);
    let origin_first = by == By::Function;
    let origin_width = widest(|row| &row.origin).clamp(origin.len(), 40);
    let numbers = |row: &Row, ns: fn(&Row) -> u64| {
        let ns = ns(row);
        format!("{:>9}  {:>7}", amount(ns), share(ns, whole))
    };
    let mut line = |own: &str, total: &str, name: &str, origin: &str| {
        let mut line = if threads {
            total.to_owned()
        } else {
            format!("{own}  {total}")
        };
        let _ = if origin_first {
            write!(line, "  {origin:origin_width$}  {name}")
        } else {
            write!(line, "  {name:name_width$}  {origin}")
        };
        out.push_str(line.trim_end());
        out.push('\n');
    };
    line(
        &format!("{:>18}", "SELF"),
        &format!("{:>18}", if threads { "TIME" } else { "TOTAL" }),
        name,
        origin,
    );
    for row in rows {
        let own = numbers(row, |row| row.own_ns);
        let total = numbers(row, |row| row.total_ns);
        line(&own, &total, &row.name, &row.origin);
    }
}
