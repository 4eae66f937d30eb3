//! Calls that the kernel does not restart, and transfers that it cuts short: a program that sends
//! itself no signal sees none of either.

use engine::wire::sample::Trigger;
use rsunwind_tests::at_once::at_once;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;

fn interrupted(settings: &str, how: &str) -> Outcome {
    interrupted_in(settings, &[how, "120"])
}

fn interrupted_in(settings: &str, arguments: &[&str]) -> Outcome {
    Run::profiled(settings, victim::c("interrupted.c"))
        .args(arguments)
        .outcome()
        .quiet()
}

#[test]
fn no_call_is_interrupted_and_no_transfer_is_short() {
    let all = [
        ("rate=10000,cost=1", "libc"),
        ("rate=1000", "libc"),
        ("rate=10000,cost=1,signal=prof", "handled"),
        ("rate=1000,trigger=timer", "libc"),
    ];
    at_once(all, |(settings, how)| {
        let outcome = interrupted(settings, how);
        assert_eq!(outcome.text(), "", "{settings} {how}");
        let recording = outcome.recording();
        let main = recording.main_thread();
        // Only these interrupt, and the timer's before Linux 5.9 alone.
        let interrupts = match settings.contains("timer") {
            true => Trigger::Timer,
            false => Trigger::PerfKernel,
        };
        assert!(main.triggers.contains(&interrupts), "{:?}", main.triggers);
        assert!(main.delivered() > 0, "{settings}");
    });
}

#[test]
fn raw_system_calls_show_what_would_happen() {
    // The control: the same calls where we cannot stand in front of them. Which of them a sample
    // meets in so short a time is chance.
    let mut text = String::new();
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
    let mut missing = needed.to_vec();
    for _ in 0..20 {
        text += &interrupted("rate=10000,cost=1", "raw").text();
        let seen = |name: &str| {
            text.lines()
                .any(|line| line.split(' ').next() == Some(name))
        };
        missing.retain(|name| !seen(name));
        if missing.is_empty() {
            return;
        }
    }
    panic!("{missing:?} are not interrupted here, so the test proves nothing:\n{text}");
}

#[test]
fn without_kernel_samples_even_raw_calls_are_left_alone() {
    let all = ["rate=1000,kernel=no", "rate=1000,trigger=timer"];
    at_once(all, |settings| {
        // But for waits that a timer does end: see the next test.
        let is_left = |line: &&str| settings.contains("timer") && line.starts_with("io_uring ");
        let text = interrupted(settings, "raw").text();
        let ended: Vec<&str> = text.lines().filter(|line| !is_left(line)).collect();
        assert!(ended.is_empty(), "{settings}: {ended:?}");
    });
}

#[test]
fn a_wait_for_an_io_uring_that_a_timer_ends_goes_on() {
    // A timer's signal is put off until the thread leaves the kernel, except in this wait: one in
    // some 3,000 is ended, whoever's timer it is.
    let forbidden = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    if forbidden.is_ok_and(|set| set.trim() != "0") {
        return eprintln!("skipped: there is no io_uring here");
    }
    let waits = |how| interrupted_in("rate=1000,trigger=timer", &[how, "20000", "io_uring"]).text();
    at_once([true, false], |is_control| match is_control {
        true => assert!((0..5).any(|_| !waits("raw").is_empty()), "none is ended"),
        false => assert_eq!(waits("libc"), ""),
    });
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
