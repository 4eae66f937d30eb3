//! Threads that end before they are sampled: where there are many, the next are armed late, at
//! little cost, and their time is a row in the function that they began in. None is unknown, and
//! one that lasts is sampled like any other.

use collector::recording::Thread;
use engine::wire::chunk::SEGMENT_STRIDE;
use engine::wire::sample::Trigger;
use engine::wire::thread::ThreadEndReason;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, succeed, text};
use rsunwind_tests::recording::{Recording, ThreadFacts};
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::judge;
use rsunwind_tests::traced::{self, Step, Trace};
use rsunwind_tests::victim;
use std::process::Command;

const BRIEF: usize = 300;
/// A period that no thread that does nothing will fill, however slow the machine.
const SLOW: &str = "rate=100";

fn run(settings: &str) -> (Recording, u64) {
    let outcome = Run::profiled(settings, victim::c("brief_threads.c"))
        .arg(BRIEF.to_string())
        .outcome()
        .quiet();
    let length = std::fs::metadata(&outcome.files()[0]).unwrap().len();
    (outcome.recording(), length)
}

fn named<'r>(recording: &'r Recording, name: &str) -> &'r ThreadFacts {
    let mut threads = recording.threads.values();
    threads.find(|thread| thread.name == name).unwrap()
}

/// Those that were never armed but for a first signal that did not come.
fn late(recording: &Recording) -> impl Iterator<Item = &ThreadFacts> {
    let all = recording.threads.values();
    all.filter(|thread| thread.triggers == [Trigger::Timer] && thread.samples.is_empty())
}

#[test]
fn each_is_known_and_none_has_an_event_or_a_chunk_of_its_own() {
    let (recording, length) = run(SLOW);
    // The first thread, the one that lasts and the one that sleeps.
    assert_eq!(recording.threads.len(), BRIEF + 3);
    for thread in late(&recording) {
        let (cpu_ns, _) = thread.end.expect("its end");
        assert!(cpu_ns > 0 && thread.unarmed_cpu_ns == cpu_ns, "{thread:?}");
        assert!(!thread.name.is_empty(), "{thread:?}");
    }
    let late = late(&recording).count();
    assert!(late > BRIEF / 2, "{late} of {BRIEF} were armed late");
    let chunks = length as usize / SEGMENT_STRIDE;
    assert!(chunks < 8, "{chunks} chunks");
}

#[test]
fn each_makes_few_system_calls() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let outcome = Run::profiled(SLOW, victim::c("brief_threads.c"))
        .arg(BRIEF.to_string())
        .with(|command| traced::trace(command, &trace))
        .outcome()
        .quiet();
    assert_eq!(outcome.files().len(), 1);
    // Not its clock's, which is read once more where a call takes long, as it does here; nor those
    // for masks, of which libc makes some.
    let is_counted = |name: &str| {
        let mut begin = ["get", "timer_", "sigaltstack", "prctl"].into_iter();
        begin.any(|with| name.starts_with(with))
    };
    let calls = |steps: &[Step]| -> Vec<String> {
        let name = |step: &Step| match step {
            Step::Call(name, _) if is_counted(name) => Some(name.clone()),
            _ => None,
        };
        steps.iter().filter_map(name).collect()
    };
    let all = Trace::read(&trace).threads;
    let few = [
        "gettid",
        "sigaltstack",
        "getpid",
        "timer_create",
        "timer_settime",
        "gettid",
        "timer_delete",
        "prctl",
        "sigaltstack",
    ];
    let with_few = all.values().filter(|steps| calls(steps) == few).count();
    assert!(with_few > BRIEF / 2, "{:?}", all.values().nth(BRIEF / 2));
}

#[test]
fn one_that_lasts_is_armed_at_its_first_tick_and_weighs_what_it_used() {
    judge(|| {
        let (recording, _) = run(SLOW);
        let lasting = named(&recording, "lasting");
        let [Trigger::Timer, .., Trigger::PerfKernel] = lasting.triggers[..] else {
            panic!("{:?}", lasting.triggers);
        };
        // But for what was before anything of ours.
        let unarmed_ns = lasting.unarmed_cpu_ns;
        assert!(unarmed_ns < lasting.period_ns, "{unarmed_ns}");
        let (cpu_ns, reason) = lasting.end.expect("its end");
        assert_eq!(reason, ThreadEndReason::ThreadExit);
        let told_ns = lasting.delivered() * lasting.period_ns;
        assert!(
            told_ns.abs_diff(cpu_ns) <= lasting.period_ns,
            "{told_ns} of {cpu_ns}"
        );
        assert_measured!(lasting.samples.len() > 25, "{}", lasting.samples.len());
    });
}

#[test]
fn one_that_sleeps_when_the_process_exits_is_known() {
    let (recording, _) = run(SLOW);
    let (_, reason) = named(&recording, "idle").end.expect("its end");
    assert_eq!(reason, ThreadEndReason::ProcessExit);
}

#[test]
fn where_events_are_insisted_on_all_have_them() {
    let (recording, _) = run("rate=100,trigger=perf");
    assert_eq!(recording.threads.len(), BRIEF + 3);
    for thread in recording.threads.values() {
        assert!(!thread.triggers.contains(&Trigger::Timer), "{thread:?}");
    }
}

/// They would all end before a first sample that comes after as many periods as the limit on what
/// samples cost leaves between two.
#[test]
fn some_that_end_before_a_sample_is_due_are_sampled_where_they_compute() {
    judge(|| {
        let recording = Run::profiled("rate=1000,overhead=0.3", victim::c("many_threads.c"))
            .args(["600", "3000000"])
            .outcome()
            .quiet()
            .recording();
        let threads = recording.threads.values();
        let began_with_timer = threads.filter(|thread| thread.triggers[0] == Trigger::Timer);
        let brief: Vec<_> = began_with_timer.collect();
        let sampled = brief.iter().filter(|thread| !thread.samples.is_empty());
        let sampled: Vec<_> = sampled.collect();
        for thread in &sampled {
            let (used_ns, _) = thread.end.expect("its end");
            let told_ns = thread.delivered() * thread.period_ns;
            assert!(told_ns.abs_diff(used_ns) <= thread.period_ns, "{thread:?}");
            assert!(thread.delivered() > 0, "{thread:?}");
            assert_eq!(thread.unarmed_cpu_ns, 0, "{thread:?}");
        }
        let (count, all) = (sampled.len(), brief.len());
        assert_measured!(count >= 5 && count < all / 3, "{count} of {all}");
    });
}

#[test]
fn their_time_is_a_row_in_the_function_that_they_began_in() {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "100"]);
    let result = output(command.arg(victim::c("brief_threads.c")).arg("2000"));
    let summary = text(&result.stderr);
    assert!(result.status.success(), "{summary}");
    assert!(
        summary.contains("[threads, before they were armed]"),
        "{summary}"
    );
    let mut export = Command::new(rsunwind());
    let export = export.args(["export", "-f", "folded", "-o", "-"]);
    let folded = succeed(export.arg(bench.path("profile.rsu")));
    let row = "nothing;[threads, before they were armed]";
    assert!(folded.contains(row), "{folded}");
}

/// What a thread has in a buffer of its own is had though nobody hands it over.
#[test]
fn one_that_is_killed_in_its_first_moments_keeps_its_samples() {
    const CHILDREN: usize = 20;
    const CPU_NS: u64 = 1_900_000;
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    let command = command.arg(victim::c("killed_early.c"));
    let result = output(command.args([CHILDREN.to_string(), (CPU_NS / 1000).to_string()]));
    let summary = text(&result.stderr);
    assert!(result.status.success(), "{summary}");
    let recording = bench.recording();
    let is_killed = |thread: &&Thread| {
        let process = &recording.processes[thread.process.index()];
        thread.tid != process.pid
    };
    let killed: Vec<_> = recording.threads.iter().filter(is_killed).collect();
    assert_eq!(killed.len(), CHILDREN, "{summary}");
    for thread in killed {
        let armed_ns = CPU_NS.saturating_sub(thread.unarmed_cpu_ns());
        let periods = armed_ns / thread.armings.last().expect("it is armed").period_ns;
        assert!(thread.totals.weight + 1 >= periods, "{thread:?}");
        assert_eq!(thread.totals.lost_weight, 0, "{thread:?}");
    }
}
