//! Small stacks and alternate stacks: samples need nothing of the one and next to nothing of the
//! other, whatever their size, and the program sees only what it has set.

use rsunwind_tests::assert_measured;
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::judge;
use rsunwind_tests::victim::{self, Compiler};
use std::path::Path;

const FAST: &str = "rate=10000,cost=1";

#[test]
fn rust_threads_with_8_kilobytes_of_alternate_stack_are_sampled_deeply() {
    let program = victim::compile(Compiler::Rust, "stacks.rs", &[]);
    let deep = |sample: &&rsunwind_tests::recording::Stack| {
        sample.frames.len() as u64 + sample.head.elided >= 3000 && sample.frames.len() >= 1000
    };
    // How many walks a thread can afford in its time is the machine's business.
    judge(|| {
        let outcome = Run::profiled(FAST, &program).outcome().quiet();
        assert_eq!(outcome.text(), "12016\n");
        let recording = outcome.recording();
        let threads = recording.threads.values();
        let walked: Vec<usize> = threads
            .map(|thread| thread.samples.iter().filter(deep).count())
            .collect();
        let many = walked.iter().filter(|count| **count >= 20).count();
        assert_measured!(many == 4, "deep walks of each thread: {walked:?}");
    });
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

/// Runs a program both ways; both must end alike.
#[track_caller]
fn same(settings: &str, program: &Path, arguments: &[&str]) -> String {
    let plain = Run::plain(program).args(arguments).outcome();
    let profiled = Run::profiled(settings, program).args(arguments).outcome();
    assert_eq!(
        (profiled.status, profiled.text(), profiled.errors()),
        (plain.status, plain.text(), plain.errors()),
        "{settings} {arguments:?}"
    );
    let recordings = profiled.recordings();
    let threads = recordings.iter().flat_map(|one| one.threads.values());
    assert!(threads.map(|thread| thread.delivered()).sum::<u64>() > 0);
    profiled.text()
}

/// Without the cure: a handler that comes in on whatever stack the thread is on.
#[track_caller]
fn breaks(program: &Path, arguments: &[&str]) {
    let naive = Run::plain(program)
        .args(arguments)
        .env("LD_PRELOAD", victim::shared("naive.c"))
        .outcome();
    assert_eq!(naive.signal(), Some(libc::SIGSEGV), "{arguments:?}");
}

#[test]
fn threads_may_have_next_to_nothing_left_of_their_stacks() {
    let program = victim::c("alternate_stacks.c");
    for left in ["3400", "1000", "400"] {
        let arguments = ["full", left];
        assert_eq!(same(FAST, &program, &arguments), "full\n");
        breaks(&program, &arguments);
    }
}

#[test]
fn threads_may_use_tile_registers_on_small_stacks() {
    // The kernel's frame is of 11 KB then; where the processor has no tiles the program does
    // without.
    for left in ["10000", "400"] {
        let program = victim::c("alternate_stacks.c");
        assert_eq!(same(FAST, &program, &["tiles", left]), "full\n");
    }
}

#[test]
fn pieces_of_a_split_stack_may_be_full() {
    let gold = ["-fsplit-stack", "-fuse-ld=gold"];
    let program = victim::compile(Compiler::C, "split_stacks.c", &gold);
    assert_eq!(same(FAST, &program, &[]), "split 9000000, near an end: 1\n");
    breaks(&program, &[]);
}

#[test]
fn a_program_has_the_alternate_stacks_that_it_has_set_and_no_other() {
    for compiler in [Compiler::C, Compiler::MuslC] {
        let program = victim::compile(compiler, "alternate_stacks.c", &[]);
        for way in [
            "shown", "frames", "left", "forks", "set", "within", "overflow", "many",
        ] {
            assert!(same(FAST, &program, &[way]).contains('\n'));
        }
        // Where the program has handlers for the signal that is used.
        for signal in ["prof", "urg"] {
            same(&format!("{FAST},signal={signal}"), &program, &["frames"]);
        }
    }
}
