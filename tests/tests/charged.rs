//! The account closes: what the kernel charged a process until its very end, as who waits for it is
//! told, is in samples and named remainders.

use collector::charge::{Ledger, Reason};
use collector::recording::{ProcessId, Recording};
use rsunwind_tests::account::{PERIOD_NS, assert_near};
use rsunwind_tests::command::{BUSY, Bench, output, rsunwind, text};
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::judge;
use rsunwind_tests::{assert_measured, repository, victim};
use std::path::Path;
use std::process::Command;

/// What the victim's parent printed.
struct Truth {
    pid: u32,
    charged_ns: u64,
    /// CPU time of the child right before its end.
    seen_ns: u64,
}

fn truth(printed: &str) -> Truth {
    let numbers: Vec<u64> = printed
        .split_whitespace()
        .map(|word| word.parse().expect(printed))
        .collect();
    let [pid, charged_ns, seen_ns] = numbers[..] else {
        panic!("{printed}");
    };
    Truth {
        pid: u32::try_from(pid).expect(printed),
        charged_ns,
        seen_ns,
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
}

fn record(options: &[&str], program: &Path, way: &str) -> (Recording, Truth) {
    let bench = Bench::new();
    let mut command = bench.record(options);
    let result = output(command.arg(program).args([way, "400"]));
    assert!(result.status.success(), "{}", text(&result.stderr));
    (bench.recording(), truth(&text(&result.stdout)))
}

/// The sum of rows of processes with that pid and of such reasons.
fn of(recording: &Recording, ledger: &Ledger, pid: u32, keep: impl Fn(Reason) -> bool) -> u64 {
    let has = |id: ProcessId| recording.processes[id.index()].pid == pid;
    let rows = ledger.rows.iter();
    let rows = rows.filter(|row| row.process.is_some_and(has) && keep(row.reason));
    rows.map(|row| row.ns).sum()
}

#[track_caller]
fn closes(options: &[&str], way: &str) -> (Recording, Ledger, Truth) {
    let (recording, truth) = record(options, &victim::c("ends.c"), way);
    let ledger = Ledger::of(&recording);
    let session = recording.session.as_ref().expect("the recording is whole");
    assert!(session.charged_ns >= truth.charged_ns, "{way}");
    assert_near(ledger.total_ns(), session.charged_ns, way);
    assert_near(
        of(&recording, &ledger, truth.pid, |_| true),
        truth.charged_ns,
        way,
    );
    (recording, ledger, truth)
}

#[test]
fn however_a_process_ends_its_end_is_a_row() {
    for way in [
        "return",
        "exit",
        "_exit",
        "quick_exit",
        "exit_group",
        "abort",
        "kill",
        "term",
        "threads",
    ] {
        judge(|| {
            let (recording, ledger, truth) = closes(&[], way);
            let end = of(&recording, &ledger, truth.pid, |reason| {
                reason == Reason::End
            });
            // What it used after its last look at its own clock; one that is killed looked at it a
            // period earlier.
            assert_near(end, truth.charged_ns - truth.seen_ns, way);
        });
    }
}

/// With a /proc of its own the first process does not know the number by which its parent waits for
/// it.
#[test]
fn the_first_process_of_a_pid_namespace_is_charged_once() {
    if !is_root() {
        eprintln!("skipped: only root makes a PID namespace here");
        return;
    }
    let bench = Bench::new();
    let busy = bench.compile("gcc", &["-O1"], BUSY);
    for proc in ["--mount-proc", "--kill-child"] {
        judge(|| {
            let mut command = bench.record(&[]);
            let command = command.args(["unshare", "-pf", proc, "sh", "-c", "\"$0\"; exit 0"]);
            let result = output(command.arg(&busy));
            assert!(result.status.success(), "{}", text(&result.stderr));
            let recording = bench.recording();
            let ledger = Ledger::of(&recording);
            let session = recording.session.as_ref().expect("the recording is whole");
            assert_near(ledger.total_ns(), session.charged_ns, proc);
            assert_eq!(ledger.strangers, [], "{proc}");
        });
    }
}

#[test]
fn exec_is_a_row() {
    for way in ["exec", "raw_exec"] {
        judge(|| {
            let (recording, ledger, truth) = closes(&[], way);
            let sampled = of(&recording, &ledger, truth.pid, |reason| {
                matches!(reason, Reason::Sampled | Reason::BetweenSamples)
            });
            assert_near(sampled, truth.seen_ns, way);
            let exec = of(&recording, &ledger, truth.pid, |reason| {
                reason == Reason::Exec
            });
            assert!(exec > 5 * PERIOD_NS, "{way}: {exec}");
        });
    }
}

#[test]
fn a_timer_accounts_for_ends_too() {
    for way in ["_exit", "exec"] {
        judge(|| {
            closes(&["--trigger", "timer"], way);
        });
    }
}

/// A tracer waits for processes that are not its children, and is not charged with them.
#[test]
fn an_end_counts_once_though_a_tracer_is_told_of_it_too() {
    let script = "for i in 1 2 3; do \"$0\"; done; exit 0";
    let tracers: [&[&str]; 2] = [
        &["strace", "-f", "-qq", "-o", "/dev/null", "--"],
        &["gdb", "-q", "-batch", "-ex", "run", "--args"],
    ];
    for tracer in tracers {
        judge(|| {
            let bench = Bench::new();
            let busy = bench.compile("gcc", &["-O1"], BUSY);
            let mut command = bench.record(&[]);
            let command = command.args(tracer).args(["sh", "-c", script]).arg(&busy);
            let result = output(command);
            assert!(result.status.success(), "{}", text(&result.stderr));
            let recording = bench.recording();
            let ledger = Ledger::of(&recording);
            let session = recording.session.as_ref().expect("the recording is whole");
            assert_near(ledger.total_ns(), session.charged_ns, tracer[0]);
            let unknown = ledger.of_reason(Reason::NotSampled);
            assert!(unknown < PERIOD_NS, "{}: {unknown}", tracer[0]);
        });
    }
}

#[test]
fn a_process_of_a_raw_clone_is_said_to_have_no_samples() {
    judge(|| {
        let (recording, truth) = record(&[], &victim::c("ends.c"), "raw_clone");
        let ledger = Ledger::of(&recording);
        let [stranger] = ledger.strangers[..] else {
            panic!("{:?}", ledger.strangers);
        };
        assert_eq!((stranger.pid, stranger.ns), (truth.pid, truth.charged_ns));
        assert_near(
            ledger.of_reason(Reason::NotSampled),
            truth.charged_ns,
            "raw clone",
        );
    });
}

#[test]
fn a_child_that_a_filter_keeps_from_writing_is_a_row_and_says_nothing() {
    let bench = Bench::new();
    let mut command = bench.record(&[]);
    let result = output(command.arg(victim::c("filtered.c")).arg("files"));
    let said = text(&result.stderr);
    assert!(result.status.success(), "{said}");
    assert!(!said.contains("not profiled"), "{said}");
    let ledger = Ledger::of(&bench.recording());
    let [stranger] = ledger.strangers[..] else {
        panic!("{:?}", ledger.strangers);
    };
    assert_eq!(stranger.refused, libc::ENOSYS as u32);
    assert!(stranger.ns > 200 * PERIOD_NS, "{}", stranger.ns);
}

/// It is set up before the filter comes, however early that is.
#[test]
fn a_child_that_puts_a_filter_on_at_once_is_sampled() {
    let bench = Bench::new();
    judge(|| {
        let mut command = bench.record(&[]);
        let result = output(command.arg(victim::c("filtered.c")).arg("own-files"));
        assert!(result.status.success(), "{}", text(&result.stderr));
        let recording = bench.recording();
        let ledger = Ledger::of(&recording);
        assert_eq!(ledger.strangers, []);
        let session = recording.session.as_ref().expect("the recording is whole");
        assert_near(ledger.total_ns(), session.charged_ns, "all");
        let sampled = ledger.of_reason(Reason::Sampled);
        assert_measured!(sampled > 200 * PERIOD_NS, "{sampled}");
    });
}

#[test]
fn a_program_that_cannot_reach_the_session_is_named_with_the_reason() {
    if !is_root() {
        eprintln!("skipped: only root makes a mount namespace here");
        return;
    }
    let bench = Bench::new();
    let busy = bench.compile("gcc", &["-O1"], BUSY);
    let script = "mount -t tmpfs none /dev/shm; \"$0\"; exit 0";
    let mut command = bench.record(&[]);
    let result = output(
        command
            .args(["unshare", "-m", "sh", "-c", script])
            .arg(&busy),
    );
    let said = text(&result.stderr);
    assert!(result.status.success(), "{said}");
    assert!(
        said.contains("session's folder cannot be reached"),
        "{said}"
    );
    let recording = bench.recording();
    let ledger = Ledger::of(&recording);
    let mut processes = recording.processes.iter();
    let program = processes.position(|p| p.name() == "program");
    let program = program.expect("it is in the recording");
    let row = ledger
        .rows
        .iter()
        .find(|row| row.process.is_some_and(|id| id.index() == program));
    let row = row.expect("it has a row");
    assert_eq!(row.reason, Reason::NotSampled);
    assert!(row.ns > 20 * PERIOD_NS, "{}", row.ns);
}

/// A static program, without the events of which it would be copied.
#[test]
fn a_program_without_samples_is_not_the_end_of_the_one_that_became_it() {
    let bench = Bench::new();
    let busy = bench.compile("gcc", &["-O1", "-static"], BUSY);
    judge(|| {
        let mut command = bench.record(&["--trigger", "timer"]);
        let result = output(command.args(["sh", "-c", "exec \"$0\""]).arg(&busy));
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(3), "{said}");
        let recording = bench.recording();
        let ledger = Ledger::of(&recording);
        let session = recording.session.as_ref().expect("the recording is whole");
        assert_near(ledger.total_ns(), session.charged_ns, "all");
        assert_eq!(ledger.of_reason(Reason::End), 0, "{said}");
        let unsampled = ledger.of_reason(Reason::NotSampled);
        assert_measured!(unsampled > 20 * PERIOD_NS, "{unsampled}");
        let became = format!("became {}", busy.display());
        assert!(said.contains(&became), "{said}");
    });
}

/// Each child is charged to its own end, however its parent waits.
#[track_caller]
fn each_child_has_its_own_end(bench: &Bench, program: &Path, way: &str) {
    let mut command = bench.record(&[]);
    let result = output(command.arg(program).args([way, "300"]));
    let told = text(&result.stderr);
    assert!(result.status.success(), "{way}: {told}");
    let recording = bench.recording();
    let ledger = Ledger::of(&recording);
    let printed = text(&result.stdout);
    assert_eq!(printed.lines().count(), 2, "{way}: {printed}");
    for line in printed.lines() {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map(|word| word.parse().expect(line))
            .collect();
        let [pid, seen_ns, charged_ns] = numbers[..] else {
            panic!("{way}: {printed}");
        };
        let pid = u32::try_from(pid).expect("a pid");
        let all = of(&recording, &ledger, pid, |_| true);
        assert_near(all, charged_ns, way);
        let end = of(&recording, &ledger, pid, |reason| reason == Reason::End);
        assert_near(end, charged_ns - seen_ns, way);
        assert!(end > 5 * PERIOD_NS, "{way}: the end takes a while: {end}");
    }
}

#[test]
fn however_it_is_waited_for_each_child_has_its_own_end() {
    for way in [
        "wait",
        "waitpid",
        "polled",
        "waitid",
        "waitid-any",
        "system",
        "pclose",
    ] {
        judge(|| each_child_has_its_own_end(&Bench::new(), &victim::c("waiters.c"), way));
    }
}

fn waiters_source() -> String {
    let source = repository().join("tests/victims/waiters.c");
    std::fs::read_to_string(source).expect("the victim")
}

#[test]
fn with_musl_too() {
    let bench = Bench::new();
    let program = bench.compile("musl-gcc", &["-O1"], &waiters_source());
    for way in ["wait", "waitpid", "polled", "waitid", "waitid-any"] {
        judge(|| each_child_has_its_own_end(&bench, &program, way));
    }
}

#[test]
fn fork_children_that_cannot_write_are_rows_with_a_reason_and_one_of_them_says_so() {
    if !is_root() {
        eprintln!("LEFT OUT: only root can become somebody else");
        return;
    }
    for (way, errno, lines) in [
        ("user", libc::EACCES, 1),
        ("redirected", libc::EACCES, 0),
        ("chroot", libc::ENOENT, 1),
    ] {
        let outcome = Run::profiled("rate=1000", victim::c("drops.c"))
            .arg(way)
            .outcome();
        assert!(outcome.status.success(), "{way}: {}", outcome.errors());
        assert_eq!(outcome.text(), "done\n", "{way}");
        let said = outcome.errors();
        assert_eq!(said.lines().count(), lines, "{way}: {said}");
        let begins = "rsunwind: not profiled: fork child ";
        assert!(said.lines().all(|line| line.starts_with(begins)), "{said}");
        let files = outcome.files();
        let recording = collector::correlate::read(&files).expect("a recording");
        let ledger = Ledger::of(&recording);
        assert_eq!(ledger.strangers.len(), 3, "{way}: {:?}", ledger.strangers);
        for stranger in &ledger.strangers {
            assert_eq!(stranger.refused, errno.cast_unsigned(), "{way}");
            assert!(stranger.ns > 140_000_000, "{way}: {stranger:?}");
        }
        let mut report = Command::new(rsunwind());
        let report = output(report.args(["report", "--summary"]).args(files));
        let report = text(&report.stdout);
        let reason = "it could not write its recording: ";
        assert_eq!(report.matches(reason).count(), 3, "{way}: {report}");
    }
}

/// What `waiters child` printed: its pid, and what its own clock showed right before its end, ns.
fn said(printed: &str) -> (u32, u64) {
    let mut words = printed.split_whitespace();
    let mut next = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (pid, seen_ns) = (next().expect(printed), next().expect(printed));
    (u32::try_from(pid).expect("a pid"), seen_ns)
}

#[test]
fn a_static_program_is_charged_to_its_end() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1", "-static"], &waiters_source());
    judge(|| {
        let mut command = bench.record(&[]);
        let script = "\"$0\" child 300; exit 0";
        let result = output(command.args(["sh", "-c", script]).arg(&program));
        let told = text(&result.stderr);
        assert!(result.status.success(), "{told}");
        let (pid, seen_ns) = said(&text(&result.stdout));
        let recording = bench.recording();
        let ledger = Ledger::of(&recording);
        let session = recording.session.as_ref().expect("the recording is whole");
        assert_near(ledger.total_ns(), session.charged_ns, "all");
        let end = of(&recording, &ledger, pid, |reason| reason == Reason::End);
        let all = of(&recording, &ledger, pid, |_| true);
        assert_near(all - end, seen_ns, "until its end");
        assert!(end > 5 * PERIOD_NS, "the end takes a while: {end}");
    });
}

#[test]
fn who_runs_on_and_is_waited_for_by_nobody_is_a_row_on_top() {
    judge(|| {
        let bench = Bench::new();
        let mut command = bench.record(&["--wait"]);
        let script = "\"$0\" child 300 & exit 0";
        let program = victim::c("waiters.c");
        let result = output(command.args(["sh", "-c", script]).arg(program));
        let told = text(&result.stderr);
        assert!(result.status.success(), "{told}");
        let (pid, seen_ns) = said(&text(&result.stdout));
        let recording = bench.recording();
        let ledger = Ledger::of(&recording);
        let [(process, unwaited_ns)] = ledger.unwaited[..] else {
            panic!("{:?}: {told}", ledger.unwaited);
        };
        assert_eq!(recording.processes[process.index()].pid, pid);
        // Nobody knows what its end cost.
        assert_near(unwaited_ns, seen_ns, "its own account");
        let session = recording.session.as_ref().expect("the recording is whole");
        assert_near(ledger.total_ns(), session.charged_ns + unwaited_ns, "all");
        assert!(told.contains("that nobody waited for"), "{told}");
    });
}
