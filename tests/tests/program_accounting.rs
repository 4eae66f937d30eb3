//! Every period of CPU time is delivered, once: per thread, in the main thread too, and with
//! whichever trigger.

use engine::wire::sample::Trigger;
use rsunwind_tests::assert_measured;
use rsunwind_tests::recording::{Recording, ThreadFacts};
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim;

/// CPU time of a thread while it was armed, in periods.
fn periods(thread: &ThreadFacts) -> f64 {
    let (cpu_ns, _) = thread.end.expect("its account is closed");
    cpu_ns.saturating_sub(thread.unarmed_cpu_ns) as f64 / thread.period_ns as f64
}

/// Each thread's delivered weight lies within `tolerance` of its CPU time; for threads with more
/// than `least` periods.
#[track_caller]
fn balanced(recording: &Recording, tolerance: f64, least: f64) -> usize {
    assert_eq!(recording.lost(), 0);
    let mut count = 0;
    for ((_, tid, _), thread) in &recording.threads {
        let expected = periods(thread);
        let period = thread.period_ns as f64;
        if expected >= least {
            // A timer is bound to the kernel's tick: what is due when the thread ends never fires.
            let slack = if thread.triggers.contains(&Trigger::Timer) {
                20.0
            } else {
                2.0
            };
            let (used, delivered) = (expected * period, thread.delivered() as f64 * period);
            assert_measured!(
                stands_for(delivered, used, used * tolerance + slack * period),
                "thread {tid}: {} of {expected:.1} periods",
                thread.delivered()
            );
            assert_eq!(thread.delivered(), thread.weight, "thread {tid}: totals");
            count += 1;
        }
    }
    count
}

#[test]
fn two_dozen_threads_at_1_khz_lose_nothing() {
    judge(|| {
        let outcome = Run::profiled("rate=1000", victim::c("burn.c"))
            .args(["250", "24"])
            .outcome()
            .quiet();
        assert_eq!(balanced(&outcome.recording(), 0.02, 200.0), 25);
    });
}

#[test]
fn timers_account_for_the_ticks_between() {
    judge(|| {
        let outcome = Run::profiled("rate=1000,trigger=timer", victim::c("burn.c"))
            .args(["800", "2"])
            .outcome()
            .quiet();
        assert_eq!(balanced(&outcome.recording(), 0.02, 700.0), 3);
    });
}

#[test]
fn events_of_user_mode_account_for_user_mode() {
    judge(|| {
        // burn looks at the clock by the vDSO: it is in user mode all the time.
        let outcome = Run::profiled("rate=1000,kernel=no", victim::c("burn.c"))
            .args(["800", "2"])
            .outcome()
            .quiet();
        assert_eq!(balanced(&outcome.recording(), 0.03, 700.0), 3);
    });
}

#[test]
fn high_rates_account_too() {
    judge(|| {
        let outcome = Run::profiled("rate=10000,cost=1", victim::c("burn.c"))
            .args(["400", "3"])
            .outcome()
            .quiet();
        assert_eq!(balanced(&outcome.recording(), 0.02, 3000.0), 4);
    });
}

#[test]
fn an_absurd_rate_is_lowered_and_said() {
    judge(|| {
        let outcome = Run::profiled("rate=50000,cost=40000", victim::c("burn.c"))
            .args(["300"])
            .outcome()
            .quiet();
        let recording = outcome.recording();
        let process = &recording.processes[0];
        assert_eq!(
            (process.asked_period_ns, process.period_ns),
            (20_000, 240_000)
        );
        balanced(&recording, 0.02, 1000.0);
        // With the cost as measured here, whatever it is, the program makes progress.
        let outcome = Run::profiled("rate=50000", victim::c("burn.c"))
            .args(["300"])
            .outcome()
            .quiet();
        let recording = outcome.recording();
        let process = &recording.processes[0];
        assert_eq!(process.asked_period_ns, 20_000);
        assert!(process.period_ns >= 20_000, "{}", process.period_ns);
    });
}
