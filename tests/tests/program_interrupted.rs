//! Calls that the kernel does not restart, and transfers that it cuts short: a program that sends
//! itself no signal sees none of either.

use engine::wire::sample::Trigger;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;

fn interrupted(settings: &str, how: &str) -> Outcome {
    Run::profiled(settings, victim::c("interrupted.c"))
        .args([how, "120"])
        .outcome()
        .quiet()
}

#[test]
fn no_call_is_interrupted_and_no_transfer_is_short() {
    for (settings, how) in [
        ("rate=10000,cost=1", "libc"),
        ("rate=1000", "libc"),
        ("rate=10000,cost=1,signal=prof", "handled"),
    ] {
        let outcome = interrupted(settings, how);
        assert_eq!(outcome.text(), "", "{settings} {how}");
        let recording = outcome.recording();
        let main = recording.main_thread();
        assert!(
            main.triggers.contains(&Trigger::PerfKernel),
            "only samples in kernel mode interrupt: {:?}",
            main.triggers
        );
        assert!(main.delivered() > 0, "{settings}");
    }
}

#[test]
fn raw_system_calls_show_what_would_happen() {
    // The control: the same calls where we cannot stand in front of them.
    let text = interrupted("rate=10000,cost=1", "raw").text();
    let seen: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let needed = [
        "poll",
        "select",
        "recv",
        "read",
        "write-pipe",
        "send",
        "read-middle",
        "sendmmsg",
    ];
    for name in needed {
        assert!(
            seen.contains(&name),
            "{name} is not interrupted here, so the test proves nothing:\n{text}"
        );
    }
}

#[test]
fn without_kernel_samples_even_raw_calls_are_left_alone() {
    for settings in ["rate=1000,kernel=no", "rate=1000,trigger=timer"] {
        assert_eq!(interrupted(settings, "raw").text(), "", "{settings}");
    }
}

#[test]
fn calls_are_taken_for_what_they_are() {
    let outcome = Run::profiled("rate=10000,cost=1", victim::c("odd_calls.c"))
        .outcome()
        .quiet();
    assert_eq!(outcome.text(), "right\n");
    let triggers = outcome.recording().main_thread().triggers.clone();
    assert!(triggers.contains(&Trigger::PerfKernel), "{triggers:?}");
}
