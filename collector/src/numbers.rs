//! Numbers in words: durations, shares, counts of things.

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

/// The middle one, or the upper of the two in the middle; `None` of none.
pub(crate) fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// A count of things: `1 thread`, `2 threads`.
pub(crate) fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 {
        format!("1 {one}")
    } else {
        format!("{count} {many}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_one_of_them() {
        assert_eq!(median(vec![9, 1, 4]), Some(4));
        assert_eq!(median(vec![]), None);
    }

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
