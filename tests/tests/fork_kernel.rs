//! A fork child has its kernel half before its first signal, too: in a small ring of an event that
//! raises nothing.

use collector::recording::KernelHalf;
use rsunwind_tests::assert_measured;
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim;
use std::os::unix::fs::MetadataExt;

/// Samples with kernel stacks of this size that the ring of such a child holds, at the least:
/// root's, and that of others.
const HELD: [u64; 2] = [240, 60];

fn long_call(settings: &str) -> (collector::recording::Recording, u64) {
    let outcome = Run::profiled(settings, victim::c("fork_kernel.c"))
        .outcome()
        .quiet();
    let cpu_ns = outcome
        .text()
        .trim()
        .parse()
        .expect("CPU time of the child");
    let recording = collector::correlate::read(&outcome.files()).expect("a recording");
    (recording, cpu_ns)
}

/// Weight of all samples, of which the parent's are next to none, and how many periods the child's
/// CPU time has, whose period is 1 ms.
fn weight(recording: &collector::recording::Recording, cpu_ns: u64) -> (u64, f64) {
    let weights = recording.samples.iter().map(|sample| sample.weight);
    (weights.sum(), cpu_ns as f64 / 1e6)
}

#[test]
fn a_child_that_lives_in_one_call_has_kernel_stacks() {
    judge(|| {
        let (recording, cpu_ns) = long_call("rate=1000");
        assert!(cpu_ns > 200_000_000, "the child does not work: {cpu_ns}");
        let account = recording.kernel_account();
        let (weight, due) = weight(&recording, cpu_ns);
        let joined = account.merged + account.reused;
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
        let held = HELD[usize::from(!is_root)].min(due as u64 * 9 / 10);
        assert_measured!(joined >= held, "{account}");
        assert_measured!(joined * 10 >= account.recorded() * 9, "{account}");
        assert_measured!(
            stands_for(weight as f64 * 1e6, due * 1e6, due * 0.02e6),
            "{weight} of {due}: {account}"
        );
        let told = (account.recorded() + account.lost) as f64;
        assert_measured!(
            stands_for(told * 1e6, due * 1e6, due * 0.05e6),
            "all are told of: {account}, {due}"
        );
    });
}

#[test]
fn a_child_with_a_timer_alone_has_its_weight() {
    judge(|| {
        // The control: no event stands beside the timer.
        let (recording, cpu_ns) = long_call("rate=1000,trigger=timer");
        let (weight, due) = weight(&recording, cpu_ns);
        let with_kernel = recording.samples.iter();
        let with_kernel = with_kernel.filter(|sample| sample.kernel != KernelHalf::None);
        assert_eq!(with_kernel.count(), 0);
        assert_measured!(
            stands_for(weight as f64 * 1e6, due * 1e6, due * 0.02e6),
            "{weight} of {due}"
        );
    });
}

#[test]
fn children_that_replace_themselves_behind_our_back_survive() {
    // Short periods for real, by the signal that kills; the child does nothing but exec.
    let outcome = Run::profiled("rate=10000,cost=1,signal=prof", victim::c("fork_kernel.c"))
        .args(["execs", "300"])
        .outcome();
    assert!(outcome.status.success(), "{}", outcome.status);
    let told = outcome.text();
    let killed = told
        .strip_suffix(" of 300 killed\n")
        .and_then(|count| count.parse::<u32>().ok());
    // The first tick of the kernel's clock arms a child for good. On a busy machine it may fall
    // between fork and exec, once in some thousand times. A child that were armed at once would
    // hardly ever live.
    assert!(killed.is_some_and(|killed| killed <= 15), "{told}");
}
