//! The account of processes that are waited for in ways of which no function of libc's tells, or by
//! nobody.

use collector::charge::{Ledger, Reason};
use rsunwind_tests::account::{PERIOD_NS, assert_near};
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::statistics::judge;
use rsunwind_tests::{assert_measured, victim};

/// The pid of a process that nobody waits for, and what its own clock showed right before its end,
/// ns.
fn said(line: &str) -> (u32, u64) {
    let mut words = line.split_whitespace().map(str::parse::<u64>);
    match (words.next(), words.next()) {
        (Some(Ok(pid)), Some(Ok(seen_ns))) => (u32::try_from(pid).expect(line), seen_ns),
        _ => panic!("{line}"),
    }
}

/// Children waited for without a word from libc, taken over by a subreaper, left to init, or to
/// nobody: each counts once.
#[test]
fn families_of_all_kinds_are_charged_once() {
    for way in [
        "number",
        "instruction",
        "pidfd",
        "system",
        "subreaper",
        "daemons",
        "ignored",
        "orphans",
    ] {
        let bench = Bench::new();
        judge(|| {
            let mut command = bench.record(&["--wait"]);
            let result = output(command.arg(victim::c("families.c")).arg(way));
            assert!(result.status.success(), "{way}: {}", text(&result.stderr));
            let recording = bench.recording();
            let ledger = Ledger::of(&recording);
            let session = recording.session.as_ref().expect("the recording is whole");
            let printed = text(&result.stdout);
            let alone: Vec<(u32, u64)> = printed.lines().map(said).collect();
            let unwaited_ns: u64 = ledger.unwaited.iter().map(|(_, ns)| ns).sum();
            assert_near(
                ledger.total_ns(),
                session.charged_ns + unwaited_ns,
                &format!("{way}: all"),
            );
            let unknown = ledger.of_reason(Reason::NotSampled);
            assert_measured!(unknown < PERIOD_NS, "{way}: {unknown}");
            for (pid, seen_ns) in alone {
                let found = ledger
                    .unwaited
                    .iter()
                    .find(|(process, _)| recording.processes[process.index()].pid == pid);
                let (_, ns) = found.unwrap_or_else(|| panic!("{way}: {:?}", ledger.unwaited));
                assert_near(*ns, seen_ns, &format!("{way}: its own account"));
            }
        });
    }
}
