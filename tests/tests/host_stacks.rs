//! Small alternate stacks: samples arrive on them, whatever their size, and need next to nothing of them.

use rsunwind_tests::run::Run;
use rsunwind_tests::victim::{self, Compiler};

const FAST: &str = "rate=10000,cost=1";

#[test]
fn rust_threads_with_8_kilobytes_of_alternate_stack_are_sampled_deeply() {
    let program = victim::compile(Compiler::Rust, "stacks.rs", &[]);
    let outcome = Run::profiled(FAST, &program).outcome().quiet();
    assert_eq!(outcome.text(), "12016\n");
    let recording = outcome.recording();
    let deep = |sample: &&rsunwind_tests::recording::Stack| {
        sample.frames.len() as u64 + sample.head.elided >= 3000 && sample.frames.len() >= 1000
    };
    let threads = recording
        .threads
        .values()
        .filter(|thread| thread.samples.iter().filter(deep).count() >= 100);
    assert_eq!(threads.count(), 4, "threads whose whole depth was walked");
}

#[test]
fn the_smallest_alternate_stack_is_enough() {
    let program = victim::c("small_alternate.c");
    let outcome = Run::profiled(FAST, &program).outcome().quiet();
    assert_eq!(outcome.text(), "intact\n");
    assert!(outcome.recording().main_thread().delivered() >= 2000);
    // The control: a handler of 6 KB does not get away with it.
    let naive = Run::plain(&program)
        .env("LD_PRELOAD", victim::shared("naive.c"))
        .outcome();
    assert!(
        !naive.status.success() || naive.text() != "intact\n",
        "{} {}",
        naive.status,
        naive.text()
    );
}
