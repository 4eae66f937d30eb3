//! Children of fork, vfork and clone: nothing that they inherit of ours harms them or their parent,
//! and each is profiled as itself.

use engine::wire::process::Origin;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim::{self, Compiler};

const FAST: &str = "rate=10000,cost=1";

#[track_caller]
fn same(way: &str) -> Outcome {
    let program = victim::c("forks.c");
    let plain = Run::plain(&program).arg(way).outcome();
    let profiled = Run::profiled(FAST, &program).arg(way).outcome();
    assert_eq!(
        (profiled.status, profiled.text(), profiled.errors()),
        (plain.status, plain.text(), plain.errors()),
        "{way}"
    );
    profiled
}

#[test]
fn forked_children_are_profiled_as_themselves() {
    let outcome = same("fork");
    let recordings = outcome.recordings();
    assert_eq!(recordings.len(), 21);
    let (parents, children): (Vec<_>, Vec<_>) = recordings
        .iter()
        .partition(|recording| recording.processes[0].origin == Origin::Exec);
    let parent = &parents[0].processes[0];
    for child in &children {
        let process = &child.processes[0];
        assert_eq!(
            (process.origin, process.parent_pid, process.parent_key),
            (Origin::Fork, parent.pid, parent.key)
        );
        assert_eq!(process.command, parent.command);
        assert!(
            child.main_thread().delivered() > 0,
            "20 ms at 10 kHz, begun with a timer"
        );
    }
    assert!(
        parents[0].main_thread().delivered() >= 1000,
        "the parent goes on: 150 ms"
    );
}

#[test]
fn children_that_see_no_tick_of_the_clock_are_accounted_for() {
    let recordings = same("brief").recordings();
    let children = recordings
        .iter()
        .filter(|recording| recording.processes[0].origin == Origin::Fork);
    let weights: Vec<u64> = children
        .map(|child| child.main_thread().delivered())
        .collect();
    assert_eq!(weights.len(), 20);
    assert!(
        weights.iter().all(|weight| *weight >= 5),
        "a millisecond at 10 kHz, by half at least: {weights:?}"
    );
}

#[test]
fn generations_are_profiled() {
    assert_eq!(same("grandchildren").recordings().len(), 6);
}

#[test]
fn a_child_of_a_process_with_threads_makes_threads_of_its_own() {
    let outcome = same("threads");
    let recordings = outcome.recordings();
    let children = recordings
        .iter()
        .filter(|recording| recording.processes[0].origin == Origin::Fork);
    let with_threads = children.filter(|child| {
        child
            .threads
            .values()
            .filter(|thread| thread.delivered() > 0)
            .count()
            == 2
    });
    assert_eq!(with_threads.count(), 10);
}

#[test]
fn the_parent_of_vfork_children_goes_on() {
    let recording = same("vfork").recording();
    assert!(
        recording.main_thread().delivered() >= 800,
        "100 ms at 10 kHz: {}",
        recording.main_thread().delivered()
    );
}

#[test]
fn children_made_behind_the_back_of_libc_live() {
    let _ = same("clone");
}

#[test]
fn children_may_reset_all_handlers() {
    let _ = same("reset");
    // The control: by raw system calls, where the reset is real, the trigger kills them.
    let by_hand = |settings: &str| {
        let settings = format!("{FAST},{settings}");
        let run = Run::profiled(&settings, victim::c("forks.c"));
        run.arg("reset-by-hand").outcome()
    };
    assert_eq!(
        by_hand("signal=prof").text(),
        format!("{}\n", 10 * (1000 + libc::SIGPROF))
    );
    // By a signal that does nothing by itself they live.
    let plain = Run::plain(victim::c("forks.c")).arg("reset-by-hand");
    assert_eq!(by_hand("signal=urg").text(), plain.outcome().text());
}

#[test]
fn the_programs_descriptors_are_its_own() {
    let outcome = same("descriptors");
    let recordings = outcome.recordings();
    assert_eq!(recordings.len(), 2);
    for recording in recordings {
        assert!(
            recording.main_thread().delivered() > 0,
            "sampled although all was closed"
        );
    }
}

#[test]
fn generations_leave_nothing_behind() {
    // Most are over before they are sampled; every tenth is set up as a whole.
    assert_eq!(same("chain").text(), "0 mappings, 0 descriptors more\n");
}

#[test]
fn threads_that_end_behind_our_back_leave_little_behind() {
    for settings in ["rate=1000", "rate=1000,trigger=timer"] {
        let more = |way: &str| -> i32 {
            let run = Run::profiled(settings, victim::c("forks.c")).arg(way);
            let text = run.outcome().quiet().text();
            let number = text.split_whitespace().next().map(str::parse);
            number.expect("a word").expect("a number")
        };
        // Each thread has a chunk of the recording; a state, a ring or a timer only as long as it
        // runs, and a little longer.
        let (behind_our_back, as_usual) = (more("leavers"), more("returners"));
        assert!(
            behind_our_back <= as_usual + 20,
            "{settings}: {behind_our_back}, {as_usual}"
        );
    }
}

#[test]
fn a_program_without_a_descriptor_left_goes_on() {
    let program = victim::c("forks.c");
    let plain = Run::plain(&program).arg("exhausted").outcome();
    let profiled = Run::profiled(FAST, &program).arg("exhausted").outcome();
    assert_eq!(
        (profiled.status, profiled.text()),
        (plain.status, plain.text())
    );
    // Its child has none for a recording.
    let said = profiled.errors();
    assert!(said.contains("no file descriptor left"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// The program's handler of `SIGCHLD` takes what has ended: not what somebody is waiting for, whom
/// the kernel serves first.
#[test]
fn who_waits_for_a_child_gets_it_before_the_handler_does() {
    for compiler in [Compiler::C, Compiler::MuslC] {
        let program = victim::compile(compiler, "reapers.c", &[]);
        for way in ["wait", "waitpid", "waitid", "waitid-any", "unasked"] {
            let plain = Run::plain(&program).arg(way).outcome();
            assert_eq!(plain.text(), "20 by waiting, 0 by the handler\n", "{way}");
            let profiled = Run::profiled(FAST, &program).arg(way).outcome();
            assert_eq!(profiled.text(), plain.text(), "{compiler:?}: {way}");
        }
    }
}
