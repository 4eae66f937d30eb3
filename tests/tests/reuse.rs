//! Walks that reuse the frames of the last one, in programs whose stacks change in every way: each
//! is compared with a full walk in the handler, and the recording says so.

use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;

const CHECKED: &str = "rate=10000,cost=1,reuse=check";

/// Whether the recordings say that walks were compared, and that each was right.
#[track_caller]
fn judge(outcome: &Outcome) {
    let recordings = outcome.recordings();
    let events = recordings.iter().flat_map(|recording| &recording.events);
    let told: Vec<&str> = events.map(|event| event.text.as_str()).collect();
    let about = |what: &str| told.iter().filter(|text| text.contains(what)).count();
    assert_eq!(about("is not what a full one finds"), 0, "{told:?}");
    assert!(about("are checked against full ones") > 0, "{told:?}");
}

#[test]
fn a_program_that_does_everything_at_once_is_walked_as_in_full() {
    let (first, second) = (victim::shared("plugin.c"), tempfile::tempdir().unwrap());
    let copy = second.path().join("plugin.so");
    std::fs::copy(&first, &copy).unwrap();
    let outcome = Run::profiled(CHECKED, victim::cpp("storm.cpp"))
        .arg("1")
        .arg(&first)
        .arg(&copy)
        .outcome()
        .quiet();
    assert_eq!(outcome.text(), "right\n");
    judge(&outcome);
}

#[test]
fn stacks_that_change_in_every_way_are_walked_as_in_full() {
    let outcome = Run::profiled(CHECKED, victim::cpp("reused.cpp"))
        .outcome()
        .quiet();
    assert_eq!(outcome.text(), "right\n");
    judge(&outcome);
}

#[test]
fn a_walk_may_be_a_full_one() {
    let outcome = Run::profiled("rate=10000,cost=1,reuse=no", victim::cpp("reused.cpp"))
        .outcome()
        .quiet();
    let recordings = outcome.recordings();
    assert!(recordings.iter().all(|recording| {
        let mut events = recording.events.iter();
        recording.samples().count() > 100 && !events.any(|event| event.text.contains("reuse"))
    }));
}
