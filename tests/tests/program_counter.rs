//! Programs that forbid themselves to read the processor's counter, which the vDSO's clock does:
//! they are sampled, and come to no harm.

use rsunwind_tests::run::Run;
use rsunwind_tests::victim;

fn profiled(way: &str) -> rsunwind_tests::run::Outcome {
    let run = Run::profiled("rate=4000,cost=1", victim::c("no_counter.c"));
    run.arg(way).outcome()
}

#[test]
fn a_program_without_a_counter_lives() {
    for way in ["libc", "number", "fork"] {
        let outcome = profiled(way).quiet();
        assert_eq!(outcome.text(), "done\n", "{way}");
        let samples =
            |recording: &rsunwind_tests::recording::Recording| recording.samples().count();
        let samples: usize = outcome.recordings().iter().map(samples).sum();
        assert!(samples > 20, "{way}: {samples}");
    }
}

#[test]
fn the_clock_would_kill_it() {
    // The control: by a system call of its own, which nobody is told of.
    let plain = Run::plain(victim::c("no_counter.c")).arg("raw").outcome();
    assert_eq!(plain.quiet().text(), "done\n");
    assert_eq!(profiled("raw").signal(), Some(libc::SIGSEGV));
}
