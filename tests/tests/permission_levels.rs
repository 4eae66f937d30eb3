//! What `rsunwind record` makes of each level of permission, as root and as an ordinary user, for
//! programs that unwind themselves and for those that cannot: the trigger that is granted, and the
//! line that says why it is no better and what would help.

use collector::correlate;
use collector::recording::{self, Recording};
use collector::summary;
use engine::wire::sample::Trigger;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{output, rsunwind, text};
use rsunwind_tests::paranoid::{NOBODY, Setting, for_everybody};
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim::{self, Compiler};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const EACCES: u32 = libc::EACCES as u32;
const ENOMEM: u32 = libc::ENOMEM as u32;
const USER_MODE: &str =
    "kernel mode needs kernel.perf_event_paranoid at 1 or below, or CAP_PERFMON";

/// rsunwind and the two kinds of program, where everybody can run them.
struct Place {
    directory: TempDir,
    rsunwind: PathBuf,
    dynamic: PathBuf,
    fixed: PathBuf,
    filtered: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dynamic = victim::c("static_split.c");
        let fixed = victim::compile(Compiler::C, "static_split.c", &["-static"]);
        let filtered = victim::c("filtered.c");
        let (directory, files) = for_everybody(&[rsunwind(), &dynamic, &fixed, &filtered]);
        let [rsunwind, dynamic, fixed, filtered] = <[_; 4]>::try_from(files).expect("four");
        Self {
            directory,
            rsunwind,
            dynamic,
            fixed,
            filtered,
        }
    }

    /// `rsunwind record` of a program that uses some 200 ms in each of two threads.
    fn record(&self, options: &[&str], program: &Path, nobody: bool) -> Command {
        let mut command = Command::new(&self.rsunwind);
        command.args(["record", "-v", "-F", "1k", "-o", "profile.rsu"]);
        command.args(options).arg("--").arg(program);
        command.args(["200", "2"]);
        self.placed(command, nobody)
    }

    /// The same in a process under a seccomp filter for perf_event_open.
    fn filtered(&self, answer: &str, options: &[&str], program: &Path) -> Command {
        let inner = self.record(options, program, false);
        let mut command = Command::new(&self.filtered);
        command.arg(answer).arg(inner.get_program());
        command.args(inner.get_args());
        self.placed(command, false)
    }

    fn placed(&self, mut command: Command, nobody: bool) -> Command {
        let _ = fs::remove_file(self.directory.path().join("profile.rsu"));
        command.current_dir(self.directory.path());
        if nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Runs it; gives what it said and the recording.
    fn run(&self, command: &mut Command) -> (String, Recording) {
        let result = output(command);
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(3), "the program's own: {said}");
        assert_eq!(text(&result.stdout).lines().count(), 2, "{said}");
        let read = correlate::read(&[self.directory.path().join("profile.rsu")]);
        (said, read.expect("a recording"))
    }
}

/// Every thread has that trigger, for that reason, and its weight.
#[track_caller]
fn sampled(what: &str, recording: &Recording, trigger: Trigger, refused: u32) {
    assert_eq!(recording.threads.len(), 2, "{what}");
    for (index, thread) in recording.threads.iter().enumerate() {
        let arming = thread.armings.last().expect("it was armed");
        assert_eq!(
            (arming.trigger, arming.refused),
            (trigger, refused),
            "{what}"
        );
        let own = recording
            .samples
            .iter()
            .filter(|sample| sample.thread.index() == index);
        let weight: u64 = own.map(|sample| sample.weight).sum();
        let armed = thread.cpu_ns().saturating_sub(thread.unarmed_cpu_ns());
        let period = arming.period_ns as f64;
        let (used, delivered) = (armed as f64, weight as f64 * period);
        // A timer is bound to the kernel's tick: what is due when the thread ends never fires.
        let slack = if trigger == Trigger::Timer { 20.0 } else { 3.0 };
        assert_measured!(
            stands_for(delivered, used, used * 0.02 + slack * period) && weight > 50,
            "{what}: {delivered} of {used} ns"
        );
        let kernel = recording.samples.iter().any(|sample| {
            sample.thread.index() == index && sample.kernel != recording::KernelHalf::None
        });
        assert!(
            !kernel || trigger == Trigger::PerfKernel,
            "{what}: kernel stacks"
        );
    }
}

fn summarized(recording: Recording) -> String {
    let profile = collector::profile::Profile::new(recording, &Default::default());
    summary::text(&profile)
}

#[test]
fn every_level_as_root_and_as_an_ordinary_user() {
    judge(|| {
        let place = Place::new();
        for level in ["0", "1", "2"] {
            let setting = Setting::paranoid(level);
            if let Err(error) = &setting {
                let now = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
                let now = now.unwrap_or_default();
                eprintln!("perf_event_paranoid cannot be changed ({error}): only {now} is tried");
                if now.trim() != level {
                    continue;
                }
            }
            for program in [&place.dynamic, &place.fixed] {
                for nobody in [false, true] {
                    let (trigger, refused) = match (level, nobody) {
                        ("2", true) => (Trigger::PerfUser, EACCES),
                        _ => (Trigger::PerfKernel, 0),
                    };
                    let what = format!("level {level}, nobody {nobody}, {}", program.display());
                    let (said, recording) = place.run(&mut place.record(&[], program, nobody));
                    sampled(&what, &recording, trigger, refused);
                    assert_eq!(said.contains(USER_MODE), refused != 0, "{what}: {said}");
                }
            }
        }
    });
}

#[test]
fn a_filter_leaves_timers_and_no_copies() {
    judge(|| {
        let place = Place::new();
        for answer in ["refuse", "deny", "kill"] {
            let mut command = place.filtered(answer, &[], &place.dynamic);
            let (said, recording) = place.run(&mut command);
            sampled(answer, &recording, Trigger::Timer, EACCES);
            let remedies = ["perf_event_paranoid", "seccomp profile", "CAP_PERFMON"];
            for remedy in remedies {
                assert!(said.contains(remedy), "{answer}: {remedy}: {said}");
            }
            let (said, recording) = place.run(&mut place.filtered(answer, &[], &place.fixed));
            assert!(recording.samples.is_empty(), "{answer}");
            for part in [
                "runs unprofiled",
                "a seccomp filter is in force",
                "--trigger perf",
            ] {
                assert!(said.contains(part), "{answer}: {part}: {said}");
            }
            let refused =
                output(&mut place.filtered(answer, &["-e", "page-faults"], &place.dynamic));
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{answer}: {said}");
            assert!(said.contains("a seccomp filter is in force"), "{said}");
        }
    });
}

#[test]
fn who_insists_on_perf_is_told_how_to_get_it() {
    let place = Place::new();
    // The answer of a kernel that refuses everything, as Debian's does at its level 3.
    for (answer, error) in [
        ("refuse", "Permission denied"),
        ("deny", "Operation not permitted"),
    ] {
        let insist = &["--trigger", "perf"];
        let (said, recording) = place.run(&mut place.filtered(answer, insist, &place.fixed));
        assert!(recording.samples.is_empty());
        let reason = format!("perf events were refused: {error} (set kernel.perf_event_paranoid");
        assert!(
            said.contains("runs unprofiled") && said.contains(&reason),
            "{said}"
        );
        let (_, recording) = place.run(&mut place.filtered(answer, insist, &place.dynamic));
        assert!(recording.samples.is_empty());
        assert_eq!(recording.unarmed_threads, 2);
        let text = summarized(recording);
        assert!(
            text.contains("2 threads could not be armed at all"),
            "{text}"
        );
    }
}

#[test]
fn too_little_locked_memory_is_said_to_be_the_reason() {
    judge(|| {
        let place = Place::new();
        let limits = Setting::paranoid("2").and_then(|level| Ok((level, Setting::mlock_kb("4")?)));
        let Ok(_limits) = limits else {
            eprintln!("kernel settings cannot be changed here: this cannot be tried");
            return;
        };
        let limited = |program| {
            let inner = place.record(&[], program, true);
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -l 0; exec \"$@\"", "sh"]);
            command.arg(inner.get_program()).args(inner.get_args());
            place.placed(command, true)
        };
        let (said, recording) = place.run(&mut limited(&place.dynamic));
        let timers = recording
            .threads
            .iter()
            .filter(|thread| thread.trigger() == Trigger::Timer);
        let refusals: Vec<u32> = timers.map(|thread| thread.armings[0].refused).collect();
        assert!(
            !refusals.is_empty() && refusals.iter().all(|errno| *errno == ENOMEM),
            "{refusals:?}"
        );
        let remedy = "raise `ulimit -l` or kernel.perf_event_mlock_kb";
        assert!(said.contains(remedy), "{said}");
        let (said, recording) = place.run(&mut limited(&place.fixed));
        assert!(recording.samples.is_empty());
        assert!(
            said.contains("memory for perf events was refused") && said.contains(remedy),
            "{said}"
        );
    });
}

/// `rsunwind record` by root of a program that an ordinary user runs.
fn on_behalf(place: &Place, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(&place.rsunwind);
    command
        .args(["record", "-v", "-o", "profile.rsu"])
        .args(options);
    let user = NOBODY.to_string();
    command.args([
        "--",
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
    ]);
    command.args(program);
    place.placed(command, false)
}

#[test]
fn root_opens_the_events_of_an_ordinary_users_program() {
    judge(|| {
        let place = Place::new();
        let Ok(_setting) = Setting::paranoid("2") else {
            eprintln!("kernel settings cannot be changed here: this cannot be tried");
            return;
        };
        let program = place.dynamic.to_str().expect("a plain path");
        let mut command = on_behalf(&place, &["-F", "1k"], &[program, "200", "2"]);
        let (said, mut recording) = place.run(&mut command);
        // setpriv became the program: its own thread is the first.
        let users = |thread: &recording::Thread| {
            let process = &recording.processes[thread.process.index()];
            process.executable == program
        };
        let threads: Vec<_> = recording
            .threads
            .iter()
            .filter(|thread| users(thread))
            .collect();
        assert_eq!(threads.len(), 2, "{said}");
        for thread in threads {
            let arming = thread.armings.last().expect("it was armed");
            assert_eq!(
                (arming.trigger, arming.refused),
                (Trigger::PerfKernel, 0),
                "{said}"
            );
            let armed = thread.cpu_ns().saturating_sub(thread.unarmed_cpu_ns());
            let (used, period) = (armed as f64, arming.period_ns as f64);
            let delivered = thread.totals.weight as f64 * period;
            assert_measured!(
                stands_for(delivered, used, used * 0.02 + 2.0 * period),
                "{delivered} of {used} ns"
            );
        }
        assert!(!said.contains(USER_MODE), "{said}");

        // Kernel stacks, of a user who may not see any by themselves.
        let copy = &["dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=20"];
        let result = output(&mut on_behalf(&place, &["-F", "1k", "-q"], copy));
        assert!(result.status.success(), "{}", text(&result.stderr));
        recording =
            correlate::read(&[place.directory.path().join("profile.rsu")]).expect("it is there");
        let joined = |sample: &&recording::RawSample| {
            use recording::KernelHalf::{Merged, Shielded};
            matches!(sample.kernel, Merged | Shielded)
        };
        let all = recording.samples.len();
        let joined = recording.samples.iter().filter(joined).count();
        assert_measured!(
            joined * 10 > all * 7 && all > 50,
            "{joined} of {all} have the kernel's stack"
        );
    });
}

#[test]
fn events_opened_by_root_leave_no_trace_and_end_with_the_program() {
    let place = Place::new();
    let Ok(_setting) = Setting::paranoid("2") else {
        eprintln!("kernel settings cannot be changed here: this cannot be tried");
        return;
    };
    // 100 programs, each replacing the one before while its events fire: a late signal would end
    // the next one.
    let script = "i=$1; ls /proc/self/fd | wc -l; [ $i -gt 0 ] && exec sh -c \"$2\" sh $((i - 1)) \"$2\"; exit 7";
    let run = |mut command: Command| {
        let result = output(&mut command);
        (
            result.status.code(),
            text(&result.stdout),
            text(&result.stderr),
        )
    };
    let program = ["sh", "-c", script, "sh", "100", script];
    let profiled = run(on_behalf(&place, &["-F", "10k", "-q"], &program));
    let mut plain = Command::new(program[0]);
    plain
        .args(&program[1..])
        .current_dir(place.directory.path());
    assert_eq!(profiled, run(plain));
    assert_eq!(profiled.0, Some(7));
    let recording =
        correlate::read(&[place.directory.path().join("profile.rsu")]).expect("it is there");
    let kernel = recording
        .threads
        .iter()
        .filter(|thread| thread.trigger() == Trigger::PerfKernel);
    assert!(kernel.count() > 50, "{} threads", recording.threads.len());
}
