//! What is compared of two profiles, and how much of a difference is chance.

use super::alike::{Renamed, place, renamed};
use crate::profile::{Names, Profile, is_time};
use crate::report::table::{Row, weighed};
use crate::report::{By, Sort};
use std::collections::BTreeMap;

/// By what two profiles are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Measure {
    /// The part of the whole, in per cent.
    Share,
    /// What was counted: ns, or how often.
    Amount,
    /// Likewise for one operation, of which each profile has as many.
    Per([f64; 2]),
}

/// Differences within so many standard deviations are called chance. Of a thousand functions that
/// have not changed, three are beyond.
const DEVIATIONS: f64 = 3.0;

/// A function, or whatever a row stands for, in two profiles.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) origin: String,
    pub(super) values: [f64; 2],
    /// Whether the difference may be chance.
    pub(super) noise: bool,
}

impl Change {
    pub(super) fn change(&self) -> f64 {
        self.values[1] - self.values[0]
    }
}

/// Of one profile.
struct Side {
    whole: f64,
    /// Variance of the whole.
    variance: f64,
    /// For each name and origin an amount and its variance.
    rows: BTreeMap<(String, String), Amount>,
}

/// Of one row.
#[derive(Clone, Default)]
struct Amount {
    amount: f64,
    variance: f64,
    origin: String,
}

/// Squares are of thousandths of a unit of time, that their sums have room.
const SCALE: u64 = 1000;

impl Side {
    /// How often a function was met is a number of Poisson's distribution; each time it was met
    /// stands for an amount.
    fn of(profile: &Profile, by: By, sort: Sort, names: Names, renamed: &Renamed) -> Self {
        let scale = if is_time(profile.shown_event) {
            SCALE
        } else {
            1
        };
        let squared = |amount: u64| (amount / scale).saturating_mul(amount / scale).max(1);
        let square = |sample: &_| {
            let times = profile.times(sample);
            squared(profile.time_ns(sample) / times).saturating_mul(times)
        };
        let scale = (scale * scale) as f64;
        let chosen = |row: &Row| match sort {
            Sort::Total => row.total_ns as f64,
            _ => row.own_ns as f64,
        };
        let mut rows: BTreeMap<(String, String), Amount> = BTreeMap::new();
        let place = |row: &Row| place(&row.name, &row.origin, by, renamed);
        for row in weighed(profile, by, names, |sample| profile.time_ns(sample)) {
            let place = place(&row);
            let sum = rows.entry(place.key).or_default();
            sum.amount += chosen(&row);
            sum.origin = place.origin;
        }
        for row in weighed(profile, by, names, square) {
            rows.entry(place(&row).key).or_default().variance += chosen(&row) * scale;
        }
        let squares = profile.weighed().map(square);
        Self {
            whole: profile.whole() as f64,
            variance: squares.map(|square| square as f64 * scale).sum(),
            rows,
        }
    }

    /// The value of an amount and the variance of the value.
    fn value(
        &self,
        measure: Measure,
        operations: f64,
        (amount, variance): (f64, f64),
    ) -> (f64, f64) {
        match measure {
            Measure::Amount => (amount, variance),
            Measure::Per(_) => (amount / operations, variance / operations.powi(2)),
            Measure::Share => {
                let whole = self.whole.max(1.0);
                let part = amount / whole;
                let variance = variance * (1.0 - 2.0 * part) + part.powi(2) * self.variance;
                let in_percent = 100.0 / whole;
                (100.0 * part, variance.max(0.0) * in_percent.powi(2))
            }
        }
    }
}

/// Two profiles, compared.
pub(super) struct Comparison {
    /// All together; its values are amounts for [`Measure::Share`], whose sums are always 100.
    pub(super) whole: Change,
    /// Each, the greatest differences first, and those that may be chance behind all others.
    pub(super) changes: Vec<Change>,
    /// Binaries of another name that are compared as one.
    pub(super) renamed: Renamed,
}

pub(super) fn compare(
    profiles: [&Profile; 2],
    measure: Measure,
    by: By,
    sort: Sort,
    names: Names,
) -> Comparison {
    let renamed = renamed(profiles);
    let [before, after] = profiles;
    let sides = [(before, &renamed), (after, &Renamed::new())]
        .map(|(profile, renamed)| Side::of(profile, by, sort, names, renamed));
    let operations = match measure {
        Measure::Per(operations) => operations,
        _ => [1.0; 2],
    };
    let change = |measure, amounts: [(f64, f64); 2]| {
        let value = |index: usize| sides[index].value(measure, operations[index], amounts[index]);
        let (first, second) = (value(0), value(1));
        let deviation = (first.1 + second.1).sqrt();
        Change {
            values: [first.0, second.0],
            noise: (second.0 - first.0).abs() <= DEVIATIONS * deviation,
            ..Change::default()
        }
    };
    let of_all = match measure {
        Measure::Share => Measure::Amount,
        other => other,
    };
    let whole = change(
        of_all,
        [0, 1].map(|index| (sides[index].whole, sides[index].variance)),
    );
    let mut names: Vec<&(String, String)> =
        sides.iter().flat_map(|side| side.rows.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let changes = names.into_iter().map(|key| {
        let rows = [0, 1].map(|index| sides[index].rows.get(key));
        let amount = |row: Option<&Amount>| row.map_or((0.0, 0.0), |it| (it.amount, it.variance));
        let [before, after] = rows;
        Change {
            name: key.0.clone(),
            origin: after
                .or(before)
                .map_or_else(String::new, |it| it.origin.clone()),
            ..change(measure, rows.map(amount))
        }
    });
    let mut changes: Vec<Change> = changes.collect();
    changes.sort_by(|a, b| {
        let size = |change: &Change| change.change().abs();
        a.noise.cmp(&b.noise).then(size(b).total_cmp(&size(a)))
    });
    Comparison {
        whole,
        changes,
        renamed,
    }
}
