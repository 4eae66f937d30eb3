//! `record -p --how inside`: a library of ours in processes that run already. What it records, that
//! nothing is left of it however the recording ends, and that calls go on as without it.
//!
//! Not here: their children (`attach_children.rs`).

use collector::profile::Gil;
use rsunwind_tests::assert_measured;
use rsunwind_tests::attach::{
    Recorder, Target, cpu_ns, has_handler, record_inside, remove_session, threads, traces,
};
use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use rsunwind_tests::profiles::{delivered, names, profile, weight};
use rsunwind_tests::statistics::{judge, stands_for, stolen_ns};
use rsunwind_tests::victim::{self, Compiler};
use std::fs;
use std::process::{Child, Command, Stdio};

#[track_caller]
fn recorded(command: &mut Command) -> String {
    let result = output(command);
    let said = text(&result.stderr);
    assert_eq!(result.status.code(), Some(0), "{said}");
    said
}

#[test]
fn threads_unwind_themselves_and_nothing_is_left() {
    for arguments in [&[][..], &["-static"]] {
        judge(|| {
            let program = victim::compile(Compiler::C, "static_split.c", arguments);
            let bench = Bench::new();
            let target = Target::start(Command::new(&program).args(["600000", "3"]));
            wait_for("its threads", || {
                let threads = threads(target.pid());
                let work = threads.iter().all(|tid| cpu_ns(*tid) > 20_000_000);
                (threads.len() == 3 && work).then_some(())
            });
            let before = traces(target.pid());
            let who = target.pid().to_string();
            let options = ["-d", "300ms"];
            let said = recorded(&mut record_inside(&bench, "a.rsu", &who, &options));
            assert!(said.contains("3 threads unwind themselves"), "{said}");
            assert_eq!(traces(target.pid()), before, "{said}");
            let profile = profile(&bench, "a.rsu");
            let all = weight(&profile, |_| true);
            let known = weight(&profile, |sample| {
                let names = names(&profile, sample);
                sample.complete && ["half", "third", "fifth"].iter().any(|f| names.contains(f))
            });
            assert_measured!(all > 50 && known * 100 >= all * 95, "{known} of {all}");
        });
    }
}

#[test]
fn threads_that_are_born_later_are_sampled() {
    judge(|| {
        let bench = Bench::new();
        let target = Target::start(Command::new(victim::c("born_later.c")).arg("1"));
        let who = target.pid().to_string();
        recorded(&mut record_inside(&bench, "a.rsu", &who, &[]));
        assert_eq!(target.end(), (Some(3), "10\n".to_owned()));
        let profile = profile(&bench, "a.rsu");
        let threads = 0..profile.recording.threads.len();
        let whole = threads.filter(|index| {
            let born = weight(&profile, |sample| {
                sample.thread.index() == *index && names(&profile, sample).contains(&"born")
            });
            // 0.1 s each: the first moments, before they were found, are copied.
            let most = 210.0 + stolen_ns() / 500_000.0;
            born >= 190 && (born as f64) <= most
        });
        let (whole, all) = (whole.count(), profile.recording.threads.len());
        // The first ran already, and there is the one that waits for them.
        assert_measured!(all > 5 && whole + 2 >= all, "{whole} of {all}");
    });
}

/// Of both Python's, what the kernel and what the program itself took, as the thread's clock says.
/// It ends at once: an interpreter works for 25 ms when it ends otherwise.
#[test]
fn the_kernels_time_is_copied_and_counted_once() {
    let script = "import os, sys, time\n\
        def reads():\n    \
            for _ in range(20): os.read(zero, 1 << 20)\n\
        def works():\n    \
            for _ in range(20): sum(i * i for i in range(3000))\n\
        zero = os.open('/dev/zero', os.O_RDONLY)\n\
        print('ready', flush=True)\n\
        sys.stdin.readline()\n\
        before, kernel = time.thread_time_ns(), 0\n\
        while time.thread_time_ns() - before < 600_000_000:\n    \
            works()\n    \
            began = time.thread_time_ns()\n    \
            reads()\n    \
            kernel += time.thread_time_ns() - began\n\
        print(time.thread_time_ns() - before, kernel, flush=True)\n\
        os._exit(0)\n";
    judge(|| {
        let bench = Bench::new();
        let mut target = Target::start(Command::new("python3").args(["-c", script]));
        assert_eq!(target.line(), "ready\n");
        let (pid, who) = (target.pid(), target.pid().to_string());
        // It is chosen by itself.
        let mut command = Command::new(rsunwind());
        command.args(["record", "-q", "--names", "0", "-F", "2k", "-p", &who, "-o"]);
        command.arg(bench.path("a.rsu"));
        let recorder = Recorder::begin_until(&mut command, |_| has_handler(pid));
        target.tell("go on\n");
        let (status, printed) = target.end();
        assert_eq!(
            (status, recorder.end()),
            (Some(0), (Some(0), String::new()))
        );
        let truth: Vec<f64> = printed
            .split_whitespace()
            .map(|ns| ns.parse().unwrap())
            .collect();
        let [all_ns, kernel_ns] = truth[..] else {
            panic!("{printed}");
        };
        let profile = profile(&bench, "a.rsu");
        assert_eq!(profile.recording.processes.len(), 1, "it is one");
        assert_eq!(profile.recording.threads.len(), 1, "and its thread");
        let got = delivered(&profile, pid, |_| true) as f64;
        assert_measured!(
            stands_for(got, all_ns, all_ns * 0.04),
            "{got} of {all_ns} ns"
        );
        let in_kernel = delivered(&profile, pid, |s| names(&profile, s).contains(&"read_zero"));
        let (got, truth) = (in_kernel as f64, kernel_ns * 0.95);
        assert_measured!(
            stands_for(got, truth, kernel_ns * 0.15),
            "{got} of {kernel_ns} ns"
        );
        let works = delivered(&profile, pid, |s| names(&profile, s).contains(&"works"));
        let (got, truth) = (works as f64, all_ns - kernel_ns);
        assert_measured!(stands_for(got, truth, truth * 0.1), "{got} of {truth} ns");
    });
}

#[test]
fn calls_go_on_as_without_us() {
    const LIMIT: u64 = 2000;
    let calls = [
        "nanosleep",
        "clock_nanosleep",
        "poll",
        "ppoll",
        "select",
        "pselect",
        "futex",
        "futex_until",
        "read",
        "epoll",
        "recv",
        "sigsuspend",
    ];
    rsunwind(); // which may have to be built first
    judge(|| {
        let bench = Bench::new();
        let mut program = Command::new(victim::c("sleeps.c"));
        let target = Target::start(program.arg(LIMIT.to_string()).args(calls));
        // Those that sleep in the calls, not those that wake them.
        let children = || {
            let path = format!("/proc/{0}/task/{0}/children", target.pid());
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        wait_for("all to sleep", || {
            let all = children();
            let sleeps = |pid: &String| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.contains(") S")
            };
            (all.len() >= calls.len() + 3 && all.iter().all(sleeps)).then_some(())
        });
        let who = children().join(",");
        let result = output(&mut record_inside(
            &bench,
            "a.rsu",
            &who,
            &["-q", "-d", "50ms"],
        ));
        let said = text(&result.stderr);
        // On a machine that stood still the calls were over before it began.
        let is_late = said.contains("no process has the number") || said.contains("it has ended");
        assert!(is_late || result.status.code() == Some(0), "{said}");
        let (status, printed) = target.end();
        assert_measured!(!is_late, "{said}");
        assert_eq!(status, Some(0));
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!(lines.len(), calls.len(), "{printed}");
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            let [name, how, took] = words[..] else {
                panic!("{line}: {printed}");
            };
            assert!(calls.contains(&name) && how == "well", "{line}");
            let took: u64 = took.parse().unwrap();
            assert!(took >= LIMIT - 1, "{line}: it ended early");
            // Begun anew it would take until then.
            assert_measured!(took < LIMIT + 150, "{line}");
        }
    });
}

#[test]
fn python_has_its_frames() {
    let bench = Bench::new();
    let script = "def inner():\n    return sum(i * i for i in range(1000))\nwhile True: inner()\n";
    let target = Target::start(Command::new("python3").args(["-c", script]));
    wait_for("its work", || {
        (cpu_ns(target.pid()) > 200_000_000).then_some(())
    });
    let before = traces(target.pid());
    judge(|| {
        let who = target.pid().to_string();
        recorded(&mut record_inside(&bench, "a.rsu", &who, &["-d", "300ms"]));
        let profile = profile(&bench, "a.rsu");
        let all = weight(&profile, |_| true);
        let inner = weight(&profile, |sample| {
            names(&profile, sample).contains(&"inner")
        });
        assert_measured!(all > 20 && inner * 10 >= all * 9, "{inner} of {all}");
        // It is never without the lock, and its own samples say so.
        let locked = weight(&profile, |sample| sample.gil == Gil::Held);
        assert_measured!(locked * 10 >= inner * 9, "{locked} of {inner}");
    });
    let now = traces(target.pid());
    let [before, now] = [before, now].map(|traces| {
        let is_kept = |line: &String| line.starts_with("Sig") || line.contains("descriptors");
        traces.into_iter().filter(is_kept).collect::<Vec<_>>()
    });
    assert_eq!(before, now, "its memory it changes itself");
}

#[test]
fn what_a_killed_recording_leaves_does_nothing_and_is_taken_away() {
    let bench = Bench::new();
    let target = Target::busy();
    let (pid, who) = (target.pid(), target.pid().to_string());
    let before = traces(pid);
    let mut first: Child = record_inside(&bench, "killed.rsu", &who, &["-q"])
        .spawn()
        .unwrap();
    wait_for("the library", || has_handler(pid).then_some(()));
    let result = output(&mut record_inside(&bench, "two.rsu", &who, &[]));
    let said = text(&result.stderr);
    assert_eq!(result.status.code(), Some(1), "{said}");
    assert!(said.contains("one does at a time"), "{said}");
    first.kill().unwrap();
    first.wait().unwrap();
    remove_session(&bench);
    let used = cpu_ns(pid);
    wait_for("it to go on", || {
        (cpu_ns(pid) > used + 20_000_000).then_some(())
    });
    assert!(has_handler(pid), "nobody was there to take it away");
    recorded(&mut record_inside(
        &bench,
        "next.rsu",
        &who,
        &["-q", "-d", "50ms"],
    ));
    assert_eq!(traces(pid), before);
}

#[test]
fn a_program_that_takes_the_signal_meanwhile_has_it() {
    let bench = Bench::new();
    let script = "import os, signal, sys\n\
        print('ready', flush=True)\n\
        sys.stdin.readline()\n\
        signal.signal(signal.SIGURG, lambda *_: print('its own', flush=True))\n\
        print('taken', flush=True)\n\
        sys.stdin.readline()\n\
        os.kill(os.getpid(), signal.SIGURG)";
    let mut target = Target::start(Command::new("python3").args(["-c", script]));
    let (pid, who) = (target.pid(), target.pid().to_string());
    assert_eq!(target.line(), "ready\n");
    let mut command = record_inside(&bench, "a.rsu", &who, &["-q"]);
    let recorder = Recorder::begin_until(&mut command, |_| has_handler(pid));
    target.tell("take it\n");
    assert_eq!(target.line(), "taken\n");
    recorder.signal("INT");
    let (status, said) = recorder.end();
    assert_eq!(status, Some(0), "{said}");
    let says = ["our library stays in it", "an action for SIGURG meanwhile"];
    assert!(says.iter().all(|part| said.contains(part)), "{said}");
    target.tell("go on\n");
    assert_eq!(target.end(), (Some(0), "its own\n".to_owned()));
}

#[test]
fn of_two_that_come_at_once_one_records() {
    let bench = Bench::new();
    let target = Target::busy();
    let (pid, who) = (target.pid(), target.pid().to_string());
    let before = traces(pid);
    let both = ["one.rsu", "two.rsu"].map(|file| {
        let mut command = record_inside(&bench, file, &who, &["-q", "-d", "50ms"]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    });
    let mut recorded = 0;
    for recorder in both {
        let result = recorder.wait_with_output().unwrap();
        let said = text(&result.stderr);
        recorded += usize::from(result.status.success());
        let is_refused = ["one does at a time", "traces it", "could not be stopped"];
        let is_refused = is_refused.iter().any(|why| said.contains(why));
        assert!(said.is_empty() || is_refused, "{said}");
    }
    assert!(recorded > 0);
    assert_eq!(traces(pid), before);
}

#[test]
fn who_may_not_be_touched_is_refused_and_goes_on() {
    let bench = Bench::new();
    let refused = |pid: u32, why: &str| {
        let result = output(&mut record_inside(&bench, "a.rsu", &pid.to_string(), &[]));
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(1), "{said}");
        assert!(
            said.contains(why) && said.contains("without --how inside"),
            "{said}"
        );
        assert!(!bench.path("a.rsu").exists());
    };
    let target = Target::start(
        bench
            .record(&["-q"])
            .arg(victim::c("static_split.c"))
            .args(["9000", "1"]),
    );
    let program = wait_for("the program", || {
        let children = threads(target.pid()).into_iter().map(|tid| {
            fs::read_to_string(format!("/proc/{tid}/task/{tid}/children")).unwrap_or_default()
        });
        let children = children.collect::<String>();
        let mut children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        children.find(|child| has_handler(*child))
    });
    refused(program, "started under rsunwind");
    let killed = Command::new("kill")
        .args(["-9", &program.to_string()])
        .status();
    assert!(killed.unwrap().success());
    assert_eq!(target.end().0, Some(128 + 9), "it was killed by us alone");
    let spins = "void _start(void) { for (;;) {} }";
    let flags = ["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"];
    let target = Target::start(&mut Command::new(bench.compile("gcc", &flags, spins)));
    refused(target.pid(), "its code is not of 64 bits");
    drop(target);
    // Until its child is done, it cannot be stopped.
    let parent = "#include <unistd.h>\n\
        int main(void) { if (!vfork()) { sleep(600); _exit(0); } return 0; }";
    let target = Target::start(&mut Command::new(bench.compile("gcc", &[], parent)));
    let pid = target.pid();
    let child = wait_for("its child", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.trim().parse::<i32>().ok()
    });
    refused(pid, "waits for a child of vfork");
    let killed = Command::new("kill")
        .args(["-9", &child.to_string()])
        .status();
    assert!(killed.unwrap().success());
    assert_eq!(target.end().0, Some(0), "it went on");
}
