//! Children of processes that are recorded by `record -p --how inside`: of fork, of vfork, and
//! those that nothing may be done to. What is recorded of them, and that nothing is left in them.

use collector::profile::Profile;
use rsunwind_tests::assert_measured;
use rsunwind_tests::attach::{
    Recorder, Target, cpu_ns, has_handler, has_library, record_inside, threads, traces, used,
};
use rsunwind_tests::command::{Bench, output, rsunwind, succeed, text};
use rsunwind_tests::profiles::{delivered, names, profile};
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim;
use std::process::Command;
use std::thread;
use std::time::Duration;

#[test]
fn children_and_the_next_program_are_copied() {
    judge(|| {
        let bench = Bench::new();
        let script = "\"$1\" 250 2; exec \"$1\" 250 2";
        let mut target = Target::waiting(script, &[&victim::c("static_split.c")]);
        let (pid, who) = (target.pid(), target.pid().to_string());
        let mut command = record_inside(&bench, "a.rsu", &who, &["-q"]);
        let recorder = Recorder::begin_until(&mut command, |_| has_handler(pid));
        target.go();
        let (status, printed) = target.end();
        assert_eq!(status, Some(3));
        let (status, said) = recorder.end();
        assert_eq!((status, &*said), (Some(0), ""));
        let profile = profile(&bench, "a.rsu");
        let used = used(&printed);
        assert_eq!(used.len(), 4, "{printed}");
        assert!(used.contains_key(&pid), "it has replaced its program");
        for (tid, ns) in used {
            let (got, ns) = (delivered(&profile, tid, |_| true) as f64, ns as f64);
            assert_measured!(
                stands_for(got, ns, ns * 0.02 + 5e6),
                "{tid}: {got} of {ns} ns"
            );
        }
    });
}

/// Children, and children of children: of one that the library has just been inherited by, and of
/// one that it was brought into anew.
#[test]
fn fork_children_unwind_themselves_and_nothing_is_left_in_them() {
    let script = "import os, sys, time\n\
        def inner(): return sum(i * i for i in range(1000))\n\
        def spend(seconds):\n\
        \x20   while time.thread_time() < seconds: inner()\n\
        def family(generations, before, last):\n\
        \x20   if os.fork(): return\n\
        \x20   if generations > 1:\n\
        \x20       spend(before)\n\
        \x20       family(generations - 1, before, last)\n\
        \x20       os.close(lives)\n\
        \x20       os.wait()\n\
        \x20       os._exit(0)\n\
        \x20   spend(last)\n\
        \x20   print(os.getpid(), os.getppid(), time.thread_time_ns(), flush=True)\n\
        \x20   os.close(lives)\n\
        \x20   os.read(ends, 1)\n\
        \x20   os._exit(0)\n\
        ends, lives = os.pipe()\n\
        print('ready', flush=True)\n\
        for words in sys.stdin:\n\
        \x20   generations, before, last = words.split()\n\
        \x20   family(int(generations), float(before), float(last))";
    judge(|| {
        let bench = Bench::new();
        let mut target = Target::start(Command::new("python3").args(["-c", script]));
        let (pid, who) = (target.pid(), target.pid().to_string());
        assert_eq!(target.line(), "ready\n");
        let mut command = record_inside(&bench, "a.rsu", &who, &["-q"]);
        let recorder = Recorder::begin_until(&mut command, |_| has_handler(pid));
        let (mut families, mut known) = (Vec::new(), vec![pid]);
        for words in ["1 0 1\n", "2 0 1\n", "2 0.4 1\n", "1 0 0\n"] {
            target.tell(words);
            let line = target.line();
            let numbers = line.split_whitespace().map(|word| word.parse().unwrap());
            let numbers: Vec<u64> = numbers.collect();
            let [child, parent, used_ns] = numbers[..] else {
                panic!("{line}");
            };
            let [child, parent] = [child, parent].map(|pid| u32::try_from(pid).unwrap());
            known.extend([child, parent]);
            families.push((child, used_ns));
        }
        let late = families.pop().map(|(pid, _)| pid);
        // Of the last one nobody may know yet.
        let entered = known.iter().filter(|pid| Some(**pid) != late);
        let all_entered = entered.clone().all(|pid| has_library(*pid));
        assert!(all_entered, "{known:?}");
        recorder.signal("INT");
        assert_eq!(recorder.end(), (Some(0), String::new()));
        for process in known {
            assert!(!has_handler(process) && !has_library(process));
        }
        let profile = profile(&bench, "a.rsu");
        for (child, used_ns) in families {
            let all = delivered(&profile, child, |_| true);
            let inner = in_function(&profile, child, "inner");
            let used = used_ns as f64;
            assert_measured!(
                stands_for(all as f64, used, used * 0.02 + 5e6),
                "{all} of {used_ns} ns"
            );
            // Copies of its beginning have no names of Python's: until the kernel's record of the
            // fork is read and a thread of it can be held, a twentieth to a third of a second.
            assert_measured!(inner * 2 > used_ns, "{inner} of {used_ns} ns");
        }
        assert_eq!(target.end_of_input(), Some(0));
    });
}

/// `attached_children.c` that is recorded from inside, and has started its child.
struct Family {
    bench: Bench,
    target: Target,
    recorder: Recorder,
    before: Vec<String>,
}

impl Family {
    fn start(kind: &str) -> Self {
        let bench = Bench::new();
        let mut target = Target::start(Command::new(victim::c("attached_children.c")).arg(kind));
        let (pid, who) = (target.pid(), target.pid().to_string());
        assert_eq!(target.line(), "ready\n");
        let before = traces(pid);
        let mut command = record_inside(&bench, "a.rsu", &who, &["-q"]);
        let recorder = Recorder::begin_until(&mut command, |_| has_handler(pid));
        target.tell("x");
        Self {
            bench,
            target,
            recorder,
            before,
        }
    }

    /// What one of them prints: two numbers.
    fn printed(&mut self) -> (u32, u64) {
        let line = self.target.line();
        let (who, value) = line.trim().split_once(' ').unwrap();
        (who.parse().unwrap(), value.parse().unwrap())
    }
}

fn in_function(profile: &Profile, tid: u32, function: &str) -> u64 {
    delivered(profile, tid, |sample| {
        names(profile, sample).contains(&function)
    })
}

/// That there is all CPU time of a thread in a recording, and so much of it in a function, ns.
#[track_caller]
fn assert_recorded(profile: &Profile, (tid, ns): (u32, u64), (function, part_ns): (&str, u64)) {
    let (all, part) = (
        delivered(profile, tid, |_| true),
        in_function(profile, tid, function),
    );
    for (got, ns) in [(all, ns), (part, part_ns)] {
        let (samples, cpu_ns) = (got as f64, ns as f64);
        let is_near = stands_for(samples, cpu_ns, cpu_ns * 0.02 + 8e6);
        assert_measured!(is_near, "{function}: {got} of {ns} ns");
    }
}

#[test]
fn a_child_of_vfork_is_copied_while_its_parent_unwinds_itself() {
    judge(|| {
        let mut family = Family::start("vfork");
        let pid = family.target.pid();
        let thread = threads(pid).into_iter().find(|tid| *tid != pid).unwrap();
        let before_ns = cpu_ns(thread);
        let (child, child_ns) = family.printed();
        let (thread, thread_ns) = family.printed();
        assert!(has_library(pid), "which was the child's, too");
        family.recorder.signal("INT");
        assert_eq!(family.recorder.end(), (Some(0), String::new()));
        assert!(!has_handler(pid) && !has_library(pid));
        assert_eq!(family.target.end_of_input(), Some(0));
        let profile = profile(&family.bench, "a.rsu");
        let half = child_ns / 2;
        assert_recorded(&profile, (child, child_ns), ("in_parents_memory", half));
        assert_recorded(&profile, (child, child_ns), ("in_own_program", half));
        let beside = in_function(&profile, thread, "beside_child");
        let least = (thread_ns - before_ns) / 100 * 95;
        assert_measured!(
            beside > least,
            "{beside} of {thread_ns} ns, {before_ns} before"
        );
    });
}

#[test]
fn a_child_that_sleeps_where_a_stop_would_end_it_is_copied_and_said() {
    judge(|| {
        let mut family = Family::start("waiting");
        let (ended, took_ms) = family.printed();
        let (child, used_ns) = family.printed();
        family.recorder.signal("INT");
        assert_eq!(family.recorder.end(), (Some(0), String::new()));
        assert!(ended == 0 && took_ms >= 3000, "{ended} after {took_ms} ms");
        assert_measured!(took_ms < 3150, "{took_ms} ms");
        let pid = family.target.pid();
        // It could be held by then.
        assert!(!has_library(child) && !has_handler(child));
        assert_eq!(traces(pid), family.before);
        let said = told(&family.bench);
        let why = "1 fork child is copied, not recorded from inside: each of its threads sleeps";
        assert!(said.contains(why), "{said}");
        let profile = profile(&family.bench, "a.rsu");
        assert_recorded(&profile, (child, used_ns), ("in_child", used_ns));
        assert_eq!(family.target.end_of_input(), Some(0));
    });
}

#[test]
fn a_child_under_a_filter_is_copied_and_what_it_inherited_does_nothing() {
    judge(|| {
        let mut family = Family::start("filtered");
        let (child, used_ns) = family.printed();
        let pid = family.target.pid();
        assert!(has_library(child), "nobody may take it away");
        // For longer than it is tried.
        thread::sleep(Duration::from_secs(2));
        family.recorder.signal("INT");
        let (status, said) = family.recorder.end();
        let stays = format!("process {child}, a fork child: our library stays in it");
        assert!(
            status == Some(0) && said.contains(&stays),
            "{status:?}: {said}"
        );
        assert_eq!(traces(pid), family.before);
        for _ in 0..10 {
            succeed(Command::new("/bin/kill").args(["-s", "URG", &child.to_string()]));
        }
        let said = told(&family.bench);
        assert!(
            said.contains("1 fork child is copied, not recorded from inside"),
            "{said}"
        );
        let profile = profile(&family.bench, "a.rsu");
        assert_recorded(&profile, (child, used_ns), ("in_child", used_ns));
        assert_eq!(family.target.end_of_input(), Some(0));
    });
}

/// What a reader of the recording is told beside the numbers.
fn told(bench: &Bench) -> String {
    let mut report = Command::new(rsunwind());
    report.args(["report", "--summary"]);
    text(&output(report.arg(bench.path("a.rsu"))).stderr)
}
