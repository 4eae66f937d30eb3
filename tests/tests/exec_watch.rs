//! Programs that cannot unwind themselves and that a profiled one starts: noticed at exec, and
//! copied by the kernel from then on.

use collector::charge::Ledger;
use collector::profile::{Profile, Sample};
use engine::wire::event::EventKind;
use engine::wire::sample::{Method, Trigger};
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, shell, text};
use rsunwind_tests::paranoid::{NOBODY, Setting, for_everybody};
use rsunwind_tests::statistics::{judge, stands_for, stolen_ns};
use rsunwind_tests::victim::{self, Compiler};
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn static_split() -> PathBuf {
    victim::compile(Compiler::C, "static_split.c", &["-static"])
}

/// CPU time of each thread that says it, ns, by its number.
fn truth(printed: &str) -> HashMap<u32, u64> {
    let lines = printed.lines().map(|line| line.split_once(' '));
    let parsed = lines.map(|line| {
        let (tid, ns) = line.expect("a thread and its time");
        (tid.parse().unwrap(), ns.parse().unwrap())
    });
    parsed.collect()
}

/// Runs a program under `record`; gives its profile, what it printed and what was said.
fn record(bench: &Bench, options: &[&str], arguments: &[&Path]) -> (Profile, String, String) {
    record_for("700", bench, options, arguments)
}

fn record_for(
    cpu_ms: &str,
    bench: &Bench,
    options: &[&str],
    arguments: &[&Path],
) -> (Profile, String, String) {
    let result = output(bench.record(options).args(arguments).args([cpu_ms, "2"]));
    let said = text(&result.stderr);
    assert_eq!(result.status.code(), Some(3), "{said}");
    eprintln!("{said}"); // shown where the test fails
    let profile = Profile::new(bench.recording(), &Default::default());
    (profile, text(&result.stdout), said)
}

fn is_copied(profile: &Profile, sample: &Sample) -> bool {
    let mut methods = profile
        .walk(sample.stack)
        .filter_map(|frame| frame.method)
        .filter(|method| *method != Method::Registers);
    methods.next() == Some(Method::StackCopy)
}

fn is_in(profile: &Profile, sample: &Sample, functions: &[&str]) -> bool {
    let frames = profile.walk(sample.stack);
    let mut names = frames.map(|frame| &*profile.function(frame).name);
    names.any(|name| functions.contains(&name))
}

/// What the kernel does for a thread behind its last look at its clock: to give its memory back can
/// take it ten milliseconds.
const ENDING: [&str; 2] = ["do_exit", "do_group_exit"];

/// Each thread that says its CPU time has it in its samples, all of them copied, within 2 % and
/// `missed` periods: of its start, before it was noticed.
#[track_caller]
fn threads_have_their_time(profile: &Profile, truth: &HashMap<u32, u64>, missed: f64) {
    threads_have_about(profile, truth, missed, 0.02);
}

/// The same, where they may have that share more.
#[track_caller]
fn threads_have_about(profile: &Profile, truth: &HashMap<u32, u64>, missed: f64, more: f64) {
    let recording = &profile.recording;
    let mut unmet = truth.clone();
    for (index, thread) in recording.threads.iter().enumerate() {
        let own = profile.samples.iter().filter(|s| s.thread.index() == index);
        let copied = own.filter(|sample| is_copied(profile, sample));
        let copied = copied.filter(|sample| !is_in(profile, sample, &ENDING));
        let weight: u64 = copied.map(|sample| sample.weight).sum();
        if weight == 0 {
            continue;
        }
        let Some(used_ns) = unmet.remove(&thread.tid) else {
            continue; // of a program that starts others
        };
        let period = thread.armings[0].period_ns as f64;
        let before = thread.unarmed_cpu_ns() as f64;
        let (delivered, used) = (weight as f64 * period, used_ns as f64 - before);
        let (least, most) = (used * 0.98, used * (1.0 + more) + stolen_ns());
        assert_measured!(
            (least - 2.0 * period..=most + 2.0 * period).contains(&delivered),
            "{}: {delivered} of {used} ns delivered",
            thread.tid
        );
        // What went unseen is what its process used before its exec, which is less than a fifth
        // here, and those periods.
        assert_measured!(before <= 200e6 + missed * period, "{before} ns unseen");
    }
    // What there is of them instead, if they are known at all.
    let others = recording.threads.iter().enumerate();
    let others = others.filter(|(_, thread)| unmet.contains_key(&thread.tid));
    let others: Vec<_> = others
        .map(|(index, thread)| {
            let own = profile.samples.iter().filter(|s| s.thread.index() == index);
            let last = own.clone().next_back();
            let stack = last.map(|s| profile.walk(s.stack).collect::<Vec<_>>());
            (thread.tid, thread.armings.len(), own.count(), stack)
        })
        .collect();
    assert!(unmet.is_empty(), "no samples of {unmet:?}: {others:?}");
}

/// Their shares of the functions whose truth is known, and that they are whole.
#[track_caller]
fn stacks_are_true(profile: &Profile) {
    let mut all = 0.0;
    let mut shares = HashMap::from([("half", 0.0), ("third", 0.0), ("fifth", 0.0)]);
    for sample in &profile.samples {
        let frames = profile.walk(sample.stack);
        let names: Vec<_> = frames.map(|frame| &*profile.function(frame).name).collect();
        for (name, share) in &mut shares {
            if names.contains(name) {
                *share += sample.weight as f64;
                all += sample.weight as f64;
                assert!(sample.complete, "{names:?}");
            }
        }
    }
    assert!(all > 1000.0, "{all} periods are too few to judge by");
    for (name, truth) in [("half", 0.5), ("third", 0.3), ("fifth", 0.2)] {
        let share = shares[name] / all;
        assert_measured!((share - truth).abs() < 0.03, "{name}: {share} for {truth}");
    }
}

#[test]
fn a_static_child_of_a_dynamic_program_is_copied() {
    judge(|| {
        let parent = victim::c("static_parent.c");
        let bench = Bench::new();
        let (profile, printed, said) = record(&bench, &["-F", "1k"], &[&parent, &static_split()]);
        let truth = truth(&printed);
        assert_eq!(truth.len(), 4, "by fork and by posix_spawn: {printed}");
        threads_have_their_time(&profile, &truth, 30.0);
        stacks_are_true(&profile);
        assert!(
            said.contains("stacks of 2 program runs were copied"),
            "{said}"
        );
        // The parent unwinds itself, before and after.
        let own = profile.samples.iter().filter(|s| !is_copied(&profile, s));
        let work = own.filter(|sample| is_in(&profile, sample, &["parents_work"]));
        let work: u64 = work.map(|sample| sample.weight).sum();
        assert_measured!(
            stands_for(work as f64 * 1e6, 600e6, 6e6),
            "{work} of 600 periods"
        );
    });
}

#[test]
fn a_program_that_becomes_a_static_one_is_copied() {
    judge(|| {
        let bench = Bench::new();
        let split = static_split();
        let mut command = bench.record(&["-F", "1k"]);
        let shell = shell("exec \"$@\"", [&split]);
        command.arg(shell.get_program()).args(shell.get_args());
        let result = output(command.args(["700", "2"]));
        assert_eq!(result.status.code(), Some(3), "{}", text(&result.stderr));
        let profile = Profile::new(bench.recording(), &Default::default());
        threads_have_their_time(&profile, &truth(&text(&result.stdout)), 30.0);
        stacks_are_true(&profile);
    });
}

#[test]
fn a_program_that_lost_the_preload_library_is_copied() {
    judge(|| {
        let bench = Bench::new();
        let (bare, split) = (victim::c("bare_exec.c"), victim::c("static_split.c"));
        let (profile, printed, said) = record(&bench, &["-F", "1k"], &[&bare, &split]);
        assert_eq!(profile.recording.processes.len(), 2);
        threads_have_their_time(&profile, &truth(&printed), 150.0);
        stacks_are_true(&profile);
        assert!(
            said.contains("stacks of 1 program run were copied"),
            "{said}"
        );
    });
}

#[test]
fn a_program_that_a_filter_keeps_from_writing_is_copied() {
    judge(|| {
        let bench = Bench::new();
        let (filtered, split) = (victim::c("filtered.c"), victim::c("static_split.c"));
        let arguments = [&filtered, Path::new("files"), &split];
        let (profile, printed, said) = record(&bench, &["-F", "1k"], &arguments);
        assert_eq!(profile.recording.processes.len(), 2);
        threads_have_their_time(&profile, &truth(&printed), 150.0);
        stacks_are_true(&profile);
        assert!(!said.contains("not profiled"), "{said}");
    });
}

#[test]
fn each_program_of_a_chain_is_recorded_once() {
    judge(|| {
        let dynamic = victim::c("static_parent.c");
        let fixed = victim::compile(Compiler::C, "static_parent.c", &["-static"]);
        // A dynamic one starts a static one starts a dynamic one starts static ones; each parent
        // runs the next one twice.
        let bench = Bench::new();
        let last = static_split();
        let chain = [&dynamic, &fixed, &dynamic, &last].map(PathBuf::as_path);
        let (profile, printed, _) = record_for("170", &bench, &["-F", "1k"], &chain);
        let truth = truth(&printed);
        assert_eq!(truth.len(), 16, "{printed}");
        // With two events on it a thread would have up to twice its time: what was sampled since
        // its clock was read last counts twice.
        threads_have_about(&profile, &truth, 30.0, 0.1);
        // 7 parents, with 150 ms three times and before the first exec; and what the children say,
        // without what they did before their exec.
        let parents = 7 * 600;
        let children = truth.values().sum::<u64>() / 1_000_000 - 4 * 150;
        let work = ["parents_work", "turn"];
        let work = profile.samples.iter().filter(|s| is_in(&profile, s, &work));
        let all: u64 = work.map(|sample| sample.weight).sum();
        let truth = (parents + children) as f64 * 1e6;
        // 3 % less to 5 % more.
        assert_measured!(
            stands_for(all as f64 * 1e6 - truth * 0.01, truth, truth * 0.04),
            "{all} of {parents} + {children}"
        );
        // Nobody says for whom the static ones waited.
        let ledger = Ledger::of(&profile.recording);
        let session = profile.recording.session.as_ref().expect("it is whole");
        let (said, charged) = (ledger.total_ns() as f64, session.charged_ns as f64);
        assert_measured!(
            stands_for(said - charged * 0.005, charged, charged * 0.015),
            "{said} of {charged} ns: {ledger:?}"
        );
    });
}

#[test]
fn beside_time_off_the_cpu_nothing_counts_twice() {
    judge(|| {
        let parent = victim::c("static_parent.c");
        let bench = Bench::new();
        let options = ["-F", "1k", "--off-cpu"];
        let (profile, printed, _) = record(&bench, &options, &[&parent, &static_split()]);
        threads_have_their_time(&profile, &truth(&printed), 30.0);
        stacks_are_true(&profile);
    });
}

/// It maps the preload library, for the program that it interprets; there it does nothing.
#[test]
fn valgrind_is_copied() {
    judge(|| {
        let bench = Bench::new();
        let split = victim::c("static_split.c");
        let mut command = bench.record(&["-F", "1k"]);
        command.args(["valgrind", "-q", "--tool=none"]).arg(&split);
        let result = output(command.args(["200", "2"]));
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(3), "{said}");
        let profile = Profile::new(bench.recording(), &Default::default());
        let session = profile.recording.session.as_ref().expect("it is whole");
        let charged = session.charged_ns as f64;
        let weight: u64 = profile.samples.iter().map(|sample| sample.weight).sum();
        // It is noticed a moment after it began.
        assert_measured!(
            stands_for(weight as f64 * 1e6, charged - 30e6, 40e6),
            "{weight} periods of {charged} ns: {said}"
        );
    });
}

#[test]
fn programs_that_run_for_a_moment_only_are_noticed() {
    judge(|| {
        let source = "#include <time.h>\nint main(void) { volatile long x = 0; struct timespec t; do { for (int i = 0; i < 100000; i++) x += i;\n\
                  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); } while (t.tv_nsec < 30000000); return 0; }";
        let bench = Bench::new();
        let program = bench.compile("gcc", &["-static", "-O1"], source);
        let mut command = bench.record(&["-F", "1k"]);
        let script = "for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \"$@\"; done; exit 3";
        let shell = shell(script, [&program]);
        command.arg(shell.get_program()).args(shell.get_args());
        let result = output(&mut command);
        assert_eq!(result.status.code(), Some(3), "{}", text(&result.stderr));
        let profile = Profile::new(bench.recording(), &Default::default());
        let processes = &profile.recording.processes;
        let runs = processes.iter().filter(|p| p.name() == "program").count();
        // One that ends before rsunwind gets a processor is not seen.
        assert_measured!(runs == 20, "{runs} of 20");
        let copied = profile.samples.iter().filter(|s| is_copied(&profile, s));
        let weight: u64 = copied.map(|sample| sample.weight).sum();
        // A millisecond or two of each passes before it is noticed, more where others want the
        // processor.
        assert_measured!(
            stands_for(weight as f64 * 1e6, 510e6, 110e6),
            "{weight} of 600 periods"
        );
    });
}

/// A program of another user's that everybody runs with that user's rights.
fn setuid(program: &Path) {
    std::os::unix::fs::chown(program, Some(NOBODY - 1), None)
        .expect("this test makes a setuid program and must run as root");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o4755)).unwrap();
}

#[test]
fn a_setuid_child_is_copied_for_root() {
    judge(|| {
        let bench = Bench::new();
        let program = bench.path("split");
        std::fs::copy(victim::c("static_split.c"), &program).unwrap();
        setuid(&program);
        let parent = victim::c("static_parent.c");
        let (profile, printed, _) = record(&bench, &["-F", "1k"], &[&parent, &program]);
        threads_have_their_time(&profile, &truth(&printed), 30.0);
        stacks_are_true(&profile);
    });
}

/// Records as an ordinary user, at level 2.
fn as_nobody(parent: &Path, child: &Path, makes: fn(&Path)) -> (Profile, String, String) {
    let _level =
        Setting::paranoid("2").expect("this test changes kernel settings and must run as root");
    let (place, files) = for_everybody(&[rsunwind(), parent, child]);
    makes(&files[2]);
    let mut command = Command::new(&files[0]);
    command
        .current_dir(place.path())
        .args(["record", "-v", "-F", "1k", "-o", "profile.rsu", "--"])
        .args(&files[1..])
        .args(["400", "2"])
        .uid(NOBODY)
        .gid(NOBODY);
    let result = output(&mut command);
    let said = text(&result.stderr);
    assert_eq!(result.status.code(), Some(3), "{said}");
    let recording = collector::correlate::read(&[place.path().join("profile.rsu")]);
    let profile = Profile::new(recording.expect("a recording"), &Default::default());
    (profile, text(&result.stdout), said)
}

#[test]
fn an_ordinary_user_has_static_children_copied_in_user_mode() {
    judge(|| {
        let parent = victim::c("static_parent.c");
        let (profile, printed, said) = as_nobody(&parent, &static_split(), |_| {});
        let truth = truth(&printed);
        threads_have_their_time(&profile, &truth, 30.0);
        stacks_are_true(&profile);
        for thread in &profile.recording.threads {
            if truth.contains_key(&thread.tid) {
                assert_ne!(thread.trigger(), Trigger::PerfKernel, "{said}");
            }
        }
    });
}

#[test]
fn an_ordinary_user_is_told_of_a_setuid_child() {
    let (parent, child) = (victim::c("static_parent.c"), victim::c("static_split.c"));
    let (profile, printed, said) = as_nobody(&parent, &child, setuid);
    assert_eq!(printed.lines().count(), 4, "{printed}");
    assert!(said.contains("has a setuid"), "{said}");
    let processes = &profile.recording.processes;
    let events = processes.iter().flat_map(|process| &process.events);
    let notes = events.filter(|event| event.kind == EventKind::Note);
    let told = notes.filter(|note| note.text.contains("it runs unprofiled"));
    assert_eq!(told.count(), 2, "{processes:?}");
}

#[test]
fn who_wants_no_children_or_no_perf_events_gets_none() {
    let parent = victim::c("static_parent.c");
    for option in [["--no-follow"].as_slice(), &["--trigger", "timer"]] {
        let bench = Bench::new();
        let (profile, _, said) = record(&bench, option, &[&parent, &static_split()]);
        let mut processes = profile.recording.processes.iter();
        assert!(
            !processes.any(|p| p.name().starts_with("static_split")),
            "{said}"
        );
        assert!(!said.contains("copied"), "{said}");
    }
}
