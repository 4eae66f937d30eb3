//! Programs that use SIGPROF themselves, and programs that block signals: both see what they would
//! see without us, and are sampled.

use rsunwind_tests::beside::Beside;
use rsunwind_tests::recording::ThreadFacts;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::{assert_measured, statistics};
use std::process::Command;

/// With the signal that these programs use.
const SETTINGS: &str = "rate=1000,signal=prof";

/// Runs a victim both ways; both must end alike. Gives the profiled one.
#[track_caller]
fn same(victim: &str, how: &str) -> Outcome {
    same_with(SETTINGS, victim, how)
}

#[track_caller]
fn same_with(settings: &str, victim: &str, how: &str) -> Outcome {
    let program = victim::c(victim);
    let plain = Run::plain(&program).arg(how).outcome();
    let profiled = Run::profiled(settings, &program).arg(how).outcome();
    assert_eq!(
        (profiled.status, profiled.text(), profiled.errors()),
        (plain.status, plain.text(), plain.errors()),
        "{victim} {how}"
    );
    profiled
}

fn busiest(outcome: &Outcome) -> ThreadFacts {
    let recording = outcome.recording();
    let busiest = recording
        .threads
        .values()
        .max_by_key(|thread| thread.delivered());
    busiest.cloned().unwrap_or_default()
}

#[test]
fn a_sigaction_of_the_programs_own_goes_on_to_libcs_by_its_other_name() {
    for settings in [SETTINGS, "rate=1000", "rate=1000,trigger=timer"] {
        let outcome = same_with(settings, "own_sigaction.c", "");
        assert!(busiest(&outcome).delivered() > 0, "{settings}");
    }
}

#[test]
fn a_timer_of_the_programs_own_ticks_as_often_as_it_asked() {
    let program = victim::c("own_sigprof.c");
    for settings in [
        SETTINGS,
        "rate=1000,signal=prof,trigger=timer",
        "rate=5000,cost=1,signal=prof",
        "rate=1000",
    ] {
        let outcome = Run::profiled(settings, &program)
            .arg("timer")
            .outcome()
            .quiet();
        let ticks: u32 = outcome.text().trim().parse().unwrap();
        // 1 s of CPU at 100 Hz, fewer where others compete for the processor: the kernel looks at
        // its own ticks. Ours would have made it a thousand and more.
        assert!((10..=200).contains(&ticks), "{settings}: {ticks} ticks");
        assert!(busiest(&outcome).delivered() >= 900, "{settings}");
    }
}

#[test]
fn a_timer_by_the_kernels_ticks_sees_as_much_as_plain() {
    let program = victim::c("ticks.c");
    let seen = |run: Run| {
        let text = run.outcome().quiet().text();
        let (ticks, used) = text.trim().split_once(' ').unwrap();
        ticks.parse::<f64>().unwrap() / used.parse::<f64>().unwrap()
    };
    statistics::judge(|| {
        let mut other = Command::new(&program);
        let _competes = Beside::silent(other.arg("for-ever"));
        let plain = seen(Run::plain(&program));
        // Asked for its CPU clock at each sample half of the ticks would not find it.
        let recorded = seen(Run::profiled("rate=4000,cost=1", &program));
        assert_measured!(
            recorded > 0.8 * plain,
            "{recorded:.2} of the CPU time, {plain:.2} plain"
        );
    });
}

#[test]
fn actions_read_back_as_set() {
    let _ = same("own_sigprof.c", "readback");
}

#[test]
fn a_handler_for_one_time_is_reset_and_the_second_signal_kills() {
    let outcome = same("own_sigprof.c", "reset");
    assert_eq!(outcome.signal(), Some(libc::SIGPROF));
}

#[test]
fn the_default_action_kills() {
    let outcome = same("own_sigprof.c", "killed");
    assert_eq!(outcome.signal(), Some(libc::SIGPROF));
}

#[test]
fn handlers_run_as_the_kernel_would_run_them() {
    for how in ["mask", "information", "nested", "alternate"] {
        let _ = same("own_sigprof.c", how);
    }
}

#[test]
fn a_handler_may_jump_away() {
    let outcome = same("own_sigprof.c", "jump");
    assert!(
        busiest(&outcome).delivered() >= 250,
        "{}",
        busiest(&outcome).delivered()
    );
}

#[test]
fn a_blocked_signal_waits() {
    let _ = same("own_sigprof.c", "blocked");
}

#[test]
fn a_signal_that_the_program_raises_is_not_taken_for_a_samples() {
    // The kernel keeps one of a number: a sample's signal that is pending swallows others.
    for trigger in ["auto", "timer"] {
        let settings = format!("rate=10000,cost=1,signal=prof,trigger={trigger}");
        let outcome = same_with(&settings, "own_sigprof.c", "raises");
        assert_eq!(outcome.text(), "30000\n10000\n2, 11\n");
    }
}

#[test]
fn a_signal_waited_for_is_not_taken_away() {
    let _ = same("own_sigprof.c", "waited");
}

#[test]
fn gprof_counts_its_own_ticks_only() {
    let program = victim::compile(Compiler::C, "burn.c", &["-pg"]);
    let ticks = |run: Run| {
        let directory = tempfile::tempdir().unwrap();
        let outcome = run.arg("600").directory(directory.path()).outcome().quiet();
        let histogram = std::fs::read(directory.path().join("gmon.out")).unwrap();
        (outcome, gmon_ticks(&histogram))
    };
    let (_, plain) = ticks(Run::plain(&program));
    let (outcome, profiled) = ticks(Run::profiled(SETTINGS, &program));
    // Fewer than 60 where others compete for the processor; with ours it would be 600 more.
    let few = 6..=150;
    assert!(few.contains(&plain), "600 ms at 100 Hz: {plain}");
    assert!(few.contains(&profiled), "600 ms at 100 Hz: {profiled}");
    assert!(busiest(&outcome).delivered() >= 500, "and is sampled by us");
}

/// The sum of the histogram in a gmon.out.
fn gmon_ticks(file: &[u8]) -> u64 {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!(
        (&file[..4], file[20]),
        (&b"gmon"[..], 0),
        "a histogram comes first"
    );
    let bins = word(37) as usize;
    let start = 21 + 8 + 8 + 4 + 4 + 15 + 1;
    let counts = file[start..start + 2 * bins].chunks_exact(2);
    counts
        .map(|bytes| u64::from(u16::from_le_bytes([bytes[0], bytes[1]])))
        .sum()
}

#[test]
fn python_counts_its_own_ticks_only() {
    let script = "
import signal, time
ticks = 0
def tick(*_):
    global ticks
    ticks += 1
signal.signal(signal.SIGPROF, tick)
signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
while time.process_time() < 0.8: pass
signal.setitimer(signal.ITIMER_PROF, 0)
signal.signal(signal.SIGPROF, signal.SIG_DFL)
end = time.process_time() + 0.1
while time.process_time() < end: pass
print(ticks, signal.getsignal(signal.SIGPROF) == signal.SIG_DFL)
";
    let outcome = Run::profiled(SETTINGS, "python3")
        .args(["-c", script])
        .outcome()
        .quiet();
    let text = outcome.text();
    let (ticks, reset) = text.trim().split_once(' ').unwrap();
    assert!(
        (8..=180).contains(&ticks.parse().unwrap()),
        "80 expected: {ticks}"
    );
    assert_eq!(reset, "True");
}

#[test]
fn threads_born_with_everything_blocked_are_sampled() {
    for how in ["born-blocked", "attribute"] {
        let outcome = same("masks.c", how);
        let recording = outcome.recording();
        let full = recording
            .threads
            .values()
            .filter(|thread| thread.samples.len() >= 200);
        let expected = if how == "born-blocked" { 2 } else { 1 };
        assert_eq!(full.count(), expected, "{how}: threads with 300 ms each");
    }
}

#[test]
fn a_thread_that_blocks_everything_by_a_raw_call_is_left_alone() {
    let outcome = same("masks.c", "raw-blocked");
    let recording = outcome.recording();
    let worker = recording
        .threads
        .iter()
        .find(|((_, tid, _), _)| *tid != recording.header.pid);
    let samples = worker.map_or(0, |(_, thread)| thread.samples.len());
    assert!(
        samples < 50,
        "the control: {samples} samples although all signals are blocked"
    );
}

#[test]
fn a_thread_that_blocks_everything_by_number_is_sampled() {
    let outcome = same("masks.c", "blocked-by-number");
    // Of a contested processor's ticks one sample may stand for several; blocked there are none.
    let samples = busiest(&outcome).samples.len();
    assert!(samples >= 100, "{samples} of 300 ms at 1 kHz");
}

#[test]
fn masks_read_back_as_set() {
    let _ = same("masks.c", "readback");
    let _ = same("masks.c", "readback-by-number");
}

#[test]
fn waits_under_a_mask_end_for_the_programs_signals_only() {
    for _ in 0..3 {
        let _ = same("masks.c", "waits");
        let _ = same("masks.c", "sigwait");
    }
}

#[test]
fn a_thread_that_jumps_out_of_a_wait_is_sampled_again() {
    let outcome = same("masks.c", "jumps");
    let samples = busiest(&outcome).samples.len();
    assert!(samples >= 100, "{samples} of the 300 ms at 1 kHz follow");
}
