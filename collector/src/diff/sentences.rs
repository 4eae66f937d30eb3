//! What is said of a comparison in words: values, differences, sentences.

use super::measure::{Change, Comparison, Measure, compare};
use crate::numbers::duration;
use crate::profile::{Names, Profile, is_time};
use crate::report::{By, Sort};

/// A value in words.
pub(super) fn words(value: f64, measure: Measure, profile: &Profile) -> String {
    match measure {
        Measure::Share => format!("{value:.1} %"),
        _ if is_time(profile.shown_event) => duration(value.abs().round() as u64),
        _ => format!("{value:.1}"),
    }
}

/// A difference in words, with its sign.
pub(super) fn change(change: &Change, measure: Measure, profile: &Profile) -> String {
    let sign = if change.change() < 0.0 { "-" } else { "+" };
    let size = change.change().abs();
    match measure {
        Measure::Share => format!("{sign}{size:.1} pp"),
        _ => format!("{sign}{}", words(size, measure, profile)),
    }
}

/// How many functions are named at once.
const NAMED: usize = 3;

/// Which of the program's own functions have changed most, with what they called of libraries,
/// unless the first row says so.
pub(super) fn own(
    profiles: [&Profile; 2],
    measure: Measure,
    names: Names,
    comparison: &Comparison,
) -> Option<String> {
    let own = compare(profiles, measure, By::Own, Sort::Own, names).changes;
    let own = own.iter().filter(|row| !row.noise).take(NAMED);
    let named = own.map(|row| (&row.name, change(row, measure, profiles[1])));
    let named: Vec<_> = named.collect();
    let first = comparison.changes.first().map(|row| &row.name);
    if named.is_empty() || named.len() == 1 && named.first().map(|(name, _)| *name) == first {
        return None;
    }
    let named = named
        .iter()
        .map(|(name, change)| format!("{change} {name}"));
    let named: Vec<_> = named.collect();
    let named = named.join(", ");
    Some(format!(
        "of the program's own functions (--by own): {named}"
    ))
}

/// What has grown by more than `limit` per cent of all before, and by more than noise; a sentence
/// each.
pub(super) fn grown(
    comparison: &Comparison,
    measure: Measure,
    limit: f64,
    after: &Profile,
) -> Vec<String> {
    let whole = &comparison.whole;
    let of_all = match measure {
        Measure::Share => 100.0,
        _ => whole.values[0],
    };
    let part = |row: &Change| 100.0 * row.change() / of_all;
    let is_grown = |row: &&Change| !row.noise && part(row) > limit;
    let sentence = |row: &Change, name: &str| {
        let [first, second] = row.values.map(|value| words(value, measure, after));
        let part = part(row);
        format!(
            "{name} has grown from {first} to {second}: {part:.1} % of all before, above {limit} %"
        )
    };
    let all = Some(whole).filter(|_| measure != Measure::Share);
    let all = all
        .filter(is_grown)
        .map(|row| sentence(row, "all together"));
    let rows = comparison.changes.iter().filter(is_grown);
    let rows = rows.map(|row| sentence(row, &row.name));
    all.into_iter().chain(rows).collect()
}
