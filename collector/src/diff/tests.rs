//! Differences of profiles made for the test.

use super::measure::Change;
use super::*;
use crate::profile::Names;
use crate::profile::tests::example;

/// The example with all samples many times over, and those of one function more often.
fn grown_by(function: &str, times: u64) -> Profile {
    let mut profile = example();
    let leaf = |profile: &Profile, sample: &crate::profile::Sample| {
        let frame = profile.walk(sample.stack).next().unwrap();
        profile.function(frame).name.to_string()
    };
    let samples = profile.samples.clone();
    profile.samples.clear();
    for sample in samples {
        let own = if leaf(&profile, &sample) == function {
            times
        } else {
            100
        };
        profile.samples.extend((0..own).map(|_| sample));
    }
    profile
}

fn compared(times: u64, measure: Measure) -> Comparison {
    let (before, after) = (grown_by("leaf", 100), grown_by("leaf", times));
    let (by, sort) = (By::Function, Sort::Own);
    compare([&before, &after], measure, by, sort, Names::Short)
}

fn of<'a>(comparison: &'a Comparison, name: &str) -> &'a Change {
    let mut changes = comparison.changes.iter();
    changes.find(|change| change.name == name).unwrap()
}

#[test]
fn what_has_grown_is_first_and_the_rest_has_a_smaller_share() {
    let comparison = compared(200, Measure::Share);
    let leaf = &comparison.changes[0];
    assert_eq!(leaf.name, "leaf");
    assert!((leaf.values[0] - 400.0 / 7.0).abs() < 0.01, "{leaf:?}");
    assert!((leaf.values[1] - 800.0 / 11.0).abs() < 0.01, "{leaf:?}");
    assert!(of(&comparison, "work; more").change() < 0.0);
    let times = compared(200, Measure::Amount);
    assert_eq!(of(&times, "leaf").values, [4e8, 8e8]);
    assert_eq!(of(&times, "work; more").change(), 0.0);
    assert_eq!(times.whole.values, [7e8, 11e8]);
    let per = compared(200, Measure::Per([100.0, 200.0]));
    assert_eq!(of(&per, "leaf").values, [4e6, 4e6]);
    assert!(!of(&per, "work; more").noise, "it does half for each");
}

#[test]
fn what_sampling_explains_is_noise() {
    // Weights 2, 1, 1 a hundred times are 400 +- 24.
    assert!(of(&compared(110, Measure::Amount), "leaf").noise);
    assert!(!of(&compared(150, Measure::Amount), "leaf").noise);
    assert!(
        compared(100, Measure::Share)
            .changes
            .iter()
            .all(|row| row.noise)
    );
}

#[test]
fn sums_of_samples_are_as_many() {
    let summed = |mut profile: Profile| {
        profile.samples.sort_by_key(|sample| sample.stack);
        profile.samples.dedup_by(|next, sum| {
            let are_alike = (next.thread, next.stack) == (sum.thread, sum.stack);
            sum.weight += u64::from(are_alike) * next.weight;
            are_alike
        });
        profile.are_sums = true;
        profile
    };
    let of_leaf = |times| {
        let profiles = [100, times].map(|times| summed(grown_by("leaf", times)));
        assert!(profiles.iter().all(|one| one.samples.len() < 10));
        let [before, after] = &profiles;
        let (by, sort) = (By::Function, Sort::Own);
        let all = compare([before, after], Measure::Amount, by, sort, Names::Short);
        of(&all, "leaf").noise
    };
    assert!(of_leaf(110) && !of_leaf(150));
}

#[test]
fn limits_are_parts_of_all_before_and_name_what_is_above() {
    let after = example();
    let said = |times, measure, limit| grown(&compared(times, measure), measure, limit, &after);
    assert!(said(200, Measure::Amount, 60.0).is_empty());
    let said_of_time = said(200, Measure::Amount, 50.0);
    assert_eq!(said_of_time.len(), 2, "{said_of_time:?}");
    assert_eq!(
        said_of_time[1],
        "leaf has grown from 400 ms to 800 ms: 57.1 % of all before, above 50 %"
    );
    assert!(said_of_time[0].starts_with("all together has grown from 700 ms to 1.10 s"));
    assert!(said(110, Measure::Amount, 1.0).is_empty(), "noise is none");
    let of_share = said(200, Measure::Share, 5.0);
    assert_eq!(of_share.len(), 1, "{of_share:?}");
    assert!(of_share[0].starts_with("leaf has grown from 57.1 % to 72.7 %"));
}

#[test]
fn the_picture_has_what_has_grown_in_red() {
    let (before, after) = (grown_by("leaf", 100), grown_by("leaf", 200));
    let mut out = Vec::new();
    let options = Options::default();
    let subtitle = "both".to_owned();
    differential::write([&before, &after], 1.0, subtitle, &options, &mut out).unwrap();
    let picture = String::from_utf8(out).unwrap();
    let wanted = "<title>leaf (400,000 µs, 36.36%; +18.18%)</title>";
    assert!(picture.contains(wanted), "{picture}");
    assert!(picture.contains("both"));
}

#[test]
fn numbers_of_operations_and_parts_are_checked() {
    assert_eq!(operations("10").unwrap(), [10.0, 10.0]);
    assert_eq!(operations("10,20").unwrap(), [10.0, 20.0]);
    for bad in ["0", "x", "1,", "-1,2", "inf"] {
        assert!(operations(bad).unwrap_err().contains("above 0"), "{bad}");
    }
    assert_eq!(percent("5%").unwrap(), 5.0);
    assert_eq!(percent("2.5 %").unwrap(), 2.5);
    assert!(percent("five").is_err() && percent("-1").is_err());
}

#[test]
fn functions_of_the_programs_own_are_named_where_the_first_row_does_not() {
    let (before, after) = (grown_by("leaf", 100), grown_by("leaf", 300));
    let compare = |by| {
        compare(
            [&before, &after],
            Measure::Share,
            by,
            Sort::Own,
            Names::Short,
        )
    };
    let said = own(
        [&before, &after],
        Measure::Share,
        Names::Short,
        &compare(By::Module),
    );
    let said = said.unwrap();
    assert!(said.contains(" pp leaf"), "{said}");
    assert!(
        said.starts_with("of the program's own functions (--by own): "),
        "{said}"
    );
}

/// The rows are in the order of the change whatever is compared.
#[test]
fn what_would_change_nothing_is_not_offered() {
    use clap::{CommandFactory, Parser};
    let parse = |sort| crate::cli::Cli::try_parse_from(["rsunwind", "diff", "--sort", sort]);
    assert!(parse("self").is_ok() && parse("total").is_ok());
    assert!(parse("name").is_err());
    crate::cli::Cli::command().debug_assert();
}
