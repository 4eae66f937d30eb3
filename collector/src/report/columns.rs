//! Prints rows in aligned columns, and durations and shares in words.

use super::By;
use super::table::Row;
use std::fmt::Write as _;

/// A duration with three digits that matter: `1.23 s`, `45.6 ms`, `789 µs`.
#[must_use]
pub(crate) fn duration(ns: u64) -> String {
    let (unit, name) = match ns {
        0 => return "0".to_owned(),
        1..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = ns as f64 / unit;
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$} {name}")
}

/// A share in per cent with one decimal, for columns.
#[must_use]
pub(crate) fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

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
    // Names of templates can be longer than any terminal: the column after them need not line up with those.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        let all = [
            0,
            7,
            1_500,
            999_000,
            1_000_000,
            45_670_000,
            1_234_000_000,
            99_000_000_000,
        ]
        .map(duration);
        assert_eq!(
            all,
            [
                "0", "0.01 µs", "1.50 µs", "999 µs", "1.00 ms", "45.7 ms", "1.23 s", "99.0 s"
            ]
        );
    }
}
