//! Programs of musl, whose loader does not say where code is: their maps are read when there is new
//! code, and not again and again because functions without tables lead to words that are no code.

use rsunwind_tests::run::Run;
use rsunwind_tests::traced::{self, Step, Trace};
use rsunwind_tests::victim::{self, Compiler};

#[test]
fn the_maps_are_read_for_new_code_only() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let outcome = Run::profiled(
        "rate=999",
        victim::compile(Compiler::MuslC, "musl_clock.c", &[]),
    )
    .with(|command| traced::trace(command, &file))
    .outcome()
    .quiet();
    let samples = outcome.recording().samples().count();
    // Under strace one may stand for several.
    assert!(samples > 30, "{samples} samples");
    let trace = Trace::read(&file);
    let steps = trace.threads.values().flatten();
    let reads = |step: &&Step| matches!(step, Step::Call(name, arguments) if name.starts_with("open") && arguments.contains("/proc/self/maps"));
    let read = steps.filter(reads).count();
    assert!(read < 15, "read {read} times in {samples} samples");
}
