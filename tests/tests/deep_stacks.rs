//! Stacks of a hundred thousand frames, more than a walk visits: the program gets on, whatever its
//! walks cost, and each sample says how far its walk went and why it ended. How much longer the
//! program takes is in the table of `tests/start_costs`.

use engine::frame_buffer::BUDGET;
use engine::wire::sample::{StopReason, flags};
use rsunwind_tests::recording::Stack;
use rsunwind_tests::run::Run;
use rsunwind_tests::victim;

const FRAMES: &str = "100000";

#[test]
fn a_program_a_hundred_thousand_frames_deep_comes_to_its_end_and_its_samples_say_so() {
    let program = victim::c("deep.c");
    for settings in [
        "rate=999,trigger=timer",
        "rate=999",
        "rate=10000,trigger=timer",
    ] {
        let outcome = Run::profiled(settings, &program)
            .args([FRAMES, "400"])
            .outcome()
            .quiet();
        assert_eq!(outcome.text(), format!("{FRAMES}\n"), "{settings}");
        let recording = outcome.recording();
        let whole = recording.samples().filter(|sample| {
            let depth = sample.frames.len() as u64 + sample.head.elided;
            depth == u64::from(BUDGET) && sample.head.stop == StopReason::FrameBudget
        });
        let count = whole.count();
        assert!(count > 5, "{settings}: {count}");
        // Signals that no walk was made for are told, so that what was sampled then is named
        // rightly.
        let says_so = |sample: &Stack| sample.head.flags & flags::WALKS_LEFT_OUT != 0;
        let told = recording.samples().filter(|sample| says_so(sample)).count();
        assert!(told > 0, "{settings}: {told} of {count}");
        assert_eq!(recording.lost(), 0, "{settings}");
    }
}

/// Each frame takes eight bytes there, so that a stack takes more than a thread's chunk has.
#[test]
fn a_sample_that_is_too_large_to_be_written_is_cut() {
    const FRAMES: u64 = 100_000;
    let program = victim::c("deep.c");
    let run = Run::profiled("rate=999", &program);
    let outcome = run.args([&*FRAMES.to_string(), "100", "far"]).outcome();
    let outcome = outcome.quiet();
    assert_eq!(outcome.text(), format!("{FRAMES}\n"));
    let recording = outcome.recording();
    let is_cut = |sample: &&Stack| {
        let kept = sample.frames.len() as u64;
        let is_deep = kept + sample.head.elided == u64::from(BUDGET);
        is_deep && sample.head.stop == StopReason::FrameBudget && kept < 4096
    };
    let cut = recording.samples().filter(is_cut).count();
    assert!(cut > 0);
    assert_eq!(recording.lost(), 0);
}
