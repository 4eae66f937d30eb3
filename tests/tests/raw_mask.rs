//! Programs that block SIGPROF by a raw system call. Made by libc's `syscall` it blocks nothing of
//! ours. Of one that we do not see all CPU time is in the recording, where it was spent, and
//! nothing of it is taken for another place's.
//!
//! The victim is `tests/victims/raw_mask.c`; it says itself how much CPU time it used, and when the
//! signal was blocked.

use collector::correlate;
use collector::recording::{KernelHalf, RawFrame, RawSample, Recording};
use engine::wire::sample::{StopReason, flags};
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, text};
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::{judge, stands_for, stolen_ns};
use rsunwind_tests::victim;
use std::process::Command;

/// Of what the program used, ns, how much may be missing or too much: two per cent.
#[track_caller]
fn equals(what: &str, found_ns: u64, truth_ns: u64) {
    let truth = truth_ns as f64;
    assert_measured!(
        stands_for(found_ns as f64, truth, truth * 0.02),
        "{what}: {found_ns} of {truth_ns}"
    );
}

struct Blocked {
    recording: Recording,
    summary: String,
    from_ns: u64,
    to_ns: u64,
    cpu_ns: u64,
}

/// How the victim makes the call so that nobody can stand in front of it.
const BARE: &str = "bare";
/// CPU time before it was blocked, and as much behind that if it is unblocked, ns.
const OPEN_NS: u64 = 200_000_000;
/// CPU time while it was blocked, at least, ms.
const BLOCKED_MS: &str = "1500";

impl Blocked {
    fn run(options: &[&str], how: &str, way: &str) -> Self {
        Self::run_for(options, how, way, BLOCKED_MS)
    }

    fn run_for(options: &[&str], how: &str, way: &str, milliseconds: &str) -> Self {
        let bench = Bench::new();
        let mut command = bench.record(&[&["--signal", "prof"], options].concat());
        let result = output(
            command
                .arg(victim::c("raw_mask.c"))
                .args([how, way, milliseconds]),
        );
        let summary = text(&result.stderr);
        assert!(result.status.success(), "{how} {way}: {summary}");
        let told = text(&result.stdout);
        let told: Vec<u64> = told
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let &[from_ns, to_ns, cpu_ns] = &told[..] else {
            panic!("{told:?}: {summary}");
        };
        let recording = bench.recording();
        Self {
            recording,
            summary,
            from_ns,
            to_ns,
            cpu_ns,
        }
    }

    fn while_blocked(&self) -> impl Iterator<Item = &RawSample> {
        let window = self.from_ns..self.to_ns;
        let samples = self.recording.samples.iter();
        samples.filter(move |sample| window.contains(&sample.time_ns))
    }

    #[track_caller]
    fn check(&self, what: &str) {
        let (recording, summary) = (&self.recording, &self.summary);
        let account = recording.kernel_account();
        let weight: u64 = recording.samples.iter().map(|sample| sample.weight).sum();
        let unarmed = recording.threads[0].unarmed_cpu_ns();
        equals(what, weight * 1_000_000 + unarmed, self.cpu_ns);
        assert!(
            summary.contains(&format!(": {account}\n")),
            "{what}: {summary}"
        );
        assert_eq!(
            (account.lost, account.shielded),
            (0, 0),
            "{what}: {summary}"
        );
        // The rest was spent before and after. Where others compete for the processor there are
        // fewer samples than CPU time: then the stack behind them has the rest of their weight.
        let blocked: u64 = self.while_blocked().map(|sample| sample.weight).sum();
        let stolen = stolen_ns() as u64;
        let (least, most) = (self.cpu_ns - 2 * OPEN_NS, self.cpu_ns - OPEN_NS + stolen);
        assert_measured!(
            (least / 100 * 90..most / 100 * 102).contains(&(blocked * 1_000_000)),
            "{what}: {blocked}: {summary}"
        );
        let (mut user, mut kernel, mut joined) = (0, 0, 0);
        for sample in self.while_blocked() {
            let frames: Vec<_> = recording.walk(sample.stack).collect();
            match sample.kernel {
                // Its place, and no callers.
                KernelHalf::None => {
                    assert_eq!(frames.len(), 1, "{what}: {sample:?}");
                    // Files are recorded when a walk meets them.
                    assert_measured!(
                        matches!(
                            frames[0],
                            RawFrame::Code {
                                module: Some(_),
                                ..
                            }
                        ),
                        "{what}: {frames:?}"
                    );
                    user += sample.weight;
                }
                half if half.is_alone() => {
                    assert!(
                        frames
                            .iter()
                            .all(|frame| matches!(frame, RawFrame::Kernel(_)))
                    );
                    kernel += sample.weight;
                }
                _ => joined += 1,
            }
        }
        assert!(
            user > 100 && kernel > 50,
            "{what}: {user} and {kernel}: {summary}"
        );
        // Two samples may be those between which the stack was read from outside.
        assert_measured!(
            joined <= 2,
            "{what}: {joined} stacks of another time: {summary}"
        );
        let named: u64 = self
            .while_blocked()
            .filter(|s| s.stop == StopReason::Blocked)
            .map(|s| s.weight)
            .sum();
        assert_measured!(
            named * 100 >= blocked * 95,
            "{what}: {named} of {blocked}: {summary}"
        );
        assert!(
            summary.contains("the signal was blocked"),
            "{what}: {summary}"
        );
    }
}

#[test]
fn by_libc_it_blocks_nothing_of_ours() {
    judge(|| {
        for way in ["unblock", "exit"] {
            let blocked = Blocked::run(&["-F", "1000"], "libc", way);
            let (recording, summary) = (&blocked.recording, &blocked.summary);
            let weight: u64 = recording.samples.iter().map(|sample| sample.weight).sum();
            let unarmed = recording.threads[0].unarmed_cpu_ns();
            equals(way, weight * 1_000_000 + unarmed, blocked.cpu_ns);
            let account = recording.kernel_account();
            let possible = account.recorded() - account.exit - account.profiler;
            let apart = possible - account.merged - account.reused;
            assert!(possible > 100 && apart <= 1, "{way}: {summary}");
            let mut stacks = blocked.while_blocked().filter(|s| !s.kernel.is_alone());
            assert!(
                stacks.all(|sample| recording.walk(sample.stack).count() > 3),
                "{way}: {summary}"
            );
        }
    });
}

#[test]
fn until_it_is_unblocked() {
    judge(|| {
        Blocked::run(&["-F", "1000"], BARE, "unblock").check("unblock");
    });
}

#[test]
fn to_the_end_of_the_program() {
    judge(|| {
        Blocked::run(&["-F", "1000"], BARE, "exit").check("exit");
    });
}

#[test]
fn to_the_end_of_the_recording() {
    judge(|| {
        // It works on, or sleeps where none of its samples were taken.
        for way in ["stay", "sleep"] {
            Blocked::run(&["-F", "1000", "-d", "5s"], BARE, way).check(way);
        }
    });
}

#[test]
fn a_thread_in_the_kernel_when_recording_ends_is_looked_at_though_it_blocks_the_signal() {
    judge(|| {
        // Asleep in the call in which it was sampled, or at work in one of many: of these, the two
        // samples are known between which the stack was read, if not more.
        for (way, least) in [("fill", 10), ("long", 1)] {
            let blocked = Blocked::run_for(&["-F", "1000", "-d", "4s"], BARE, way, "400");
            let (recording, summary) = (&blocked.recording, &blocked.summary);
            let weight: u64 = recording.samples.iter().map(|sample| sample.weight).sum();
            let unarmed = recording.threads[0].unarmed_cpu_ns();
            equals(way, weight * 1_000_000 + unarmed, blocked.cpu_ns);
            let (mut seen, mut alone) = (0, 0);
            for sample in blocked
                .while_blocked()
                .filter(|s| s.kernel != KernelHalf::None)
            {
                if sample.kernel.is_alone() {
                    alone += 1;
                    continue;
                }
                // Only that call has a stack, and it is whole.
                assert_ne!(
                    sample.flags & flags::FROM_OUTSIDE,
                    0,
                    "{way}: {sample:?}: {summary}"
                );
                assert_eq!(sample.stop, StopReason::Root, "{way}: {summary}");
                assert!(recording.walk(sample.stack).count() > 5, "{way}");
                seen += 1;
            }
            // Whether it is in one call when it is looked at and when it is sampled next is chance.
            assert_measured!(
                seen >= least && alone >= 50,
                "{way}: {seen} and {alone}: {summary}"
            );
        }
    });
}

/// Where not every sample is kept, the weight of the others is nobody's: least of all that of the
/// stack which unblocked the signal.
#[track_caller]
fn is_accounted_for_without_a_collector(settings: &str, way: &str) {
    let what = format!("{settings} {way}");
    let run = Run::profiled(settings, victim::c("raw_mask.c")).args([BARE, way, BLOCKED_MS]);
    let outcome = run.outcome().quiet();
    let told = outcome.text();
    let cpu_ns = told
        .split_whitespace()
        .nth(2)
        .and_then(|word| word.parse().ok());
    let recording = correlate::read(&outcome.files()).expect("a recording");
    let weight: u64 = recording.samples.iter().map(|sample| sample.weight).sum();
    let unarmed = recording.threads[0].unarmed_cpu_ns();
    equals(&what, weight * 1_000_000 + unarmed, cpu_ns.unwrap_or(0));
    let heavy: Vec<_> = recording.samples.iter().filter(|s| s.weight > 50).collect();
    // A hypervisor that takes the processor away for a while makes another one.
    assert_measured!(heavy.len() == 1, "{what}: {heavy:?}");
    let heavy = heavy[0];
    let expected = match way {
        "exit" => (flags::LAST, "since the last sample]"),
        _ => (flags::LET_IN, "[while the signal was blocked]"),
    };
    assert_ne!(heavy.flags & expected.0, 0, "{what}: {heavy:?}");
    let mut report = Command::new(rsunwind());
    let shown = text(&output(report.arg("report").args(outcome.files())).stdout);
    assert!(shown.contains(expected.1), "{what}: {shown}");
}

#[test]
fn without_a_collector_and_with_other_triggers_no_stack_gets_the_weight_of_others() {
    judge(|| {
        for settings in [
            "rate=1000,signal=prof",
            "rate=1000,signal=prof,kernel=no",
            "rate=1000,signal=prof,trigger=timer",
        ] {
            is_accounted_for_without_a_collector(settings, "unblock");
            is_accounted_for_without_a_collector(settings, "exit");
        }
    });
}
