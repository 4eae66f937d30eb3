//! Ledgers of recordings made for the test: rows add up to what was charged, whatever is missing.

use super::*;
use crate::recording::example::stackless;
use crate::recording::{Arming, Event, Process, SessionInfo, Thread, ThreadEnd, ThreadId, Totals};
use engine::wire::charge::{ChildEnd, ProcessEnd};
use engine::wire::event::EventKind;
use engine::wire::sample::Trigger;
use engine::wire::thread::ThreadEndReason;

const MS: u64 = 1_000_000;

/// A recording of a command that was charged so much; its first process is the command.
fn command(charged_ms: u64) -> Recording {
    Recording {
        session: Some(SessionInfo {
            pid: 10,
            charged_ns: charged_ms * MS,
            ..SessionInfo::default()
        }),
        ..Recording::default()
    }
}

/// Adds a program run, whose clock shows `began_ms` at first and `end` at last, with one thread,
/// armed from one millisecond later on.
fn run(recording: &mut Recording, pid: u32, began_ms: u64, samples: u64, end_ms: Option<u64>) {
    let count = recording.processes.len() as u64;
    let end = |cpu_ns| ProcessEnd {
        time_ns: count + 1,
        cpu_ns,
        children_ns: 0,
        reason: ThreadEndReason::ProcessExit,
    };
    recording.processes.push(Process {
        pid,
        key: count,
        period_ns: MS,
        cpu_ns: began_ms * MS,
        thread_cpu_ns: began_ms * MS,
        end: end_ms.map(|ms| end(ms * MS)),
        ..Process::default()
    });
    let thread = ThreadId::next_of(recording.threads.len());
    let unarmed_cpu_ns = (began_ms + 1) * MS;
    recording.threads.push(Thread {
        process: ProcessId::new(count as u32),
        tid: pid,
        key: count,
        name: String::new(),
        armings: vec![Arming {
            time_ns: 0,
            trigger: Trigger::PerfKernel,
            period_ns: MS,
            periods: 1,
            refused: 0,
            signal: 23,
            unarmed_cpu_ns,
        }],
        end: end_ms.map(|ms| ThreadEnd {
            time_ns: 0,
            cpu_ns: ms * MS,
            reason: ThreadEndReason::ProcessExit,
        }),
        totals: Totals {
            unarmed_cpu_ns,
            cpu_ns: unarmed_cpu_ns + samples * MS,
            ..Totals::default()
        },
        late_cpu_ns: 0,
    });
    recording.samples.push(stackless(thread, samples));
}

fn waits(recording: &mut Recording, process: usize, pid: u32, charged_ms: u64) {
    recording.processes[process].children.push(ChildEnd {
        time_ns: 1000,
        pid,
        wait_status: 0,
        charged_ns: charged_ms * MS,
        ..ChildEnd::default()
    });
    if let Some(end) = &mut recording.processes[process].end {
        end.children_ns += charged_ms * MS;
    }
}

fn ms(ledger: &Ledger) -> Vec<(Reason, u64)> {
    let rows = ledger.by_reason();
    rows.map(|(reason, ns)| (reason, ns / MS)).collect()
}

#[test]
fn a_process_is_followed_from_its_first_clock_to_its_last_charge() {
    let mut recording = command(300);
    run(&mut recording, 10, 2, 95, Some(100));
    // The same process after exec: it took 50 ms to tear down what was there.
    run(&mut recording, 10, 150, 99, Some(250));
    let ledger = Ledger::of(&recording);
    assert!(ledger.is_closed);
    assert_eq!(
        ms(&ledger),
        [
            (Reason::Sampled, 194),
            (Reason::BetweenSamples, 2),
            (Reason::SetUp, 2),
            (Reason::Exec, 52),
            (Reason::End, 50),
        ]
    );
    assert_eq!(ledger.total_ns(), 300 * MS);
}

#[test]
fn children_are_their_own() {
    let mut recording = command(500);
    run(&mut recording, 10, 0, 99, Some(100));
    run(&mut recording, 11, 0, 199, Some(200));
    recording.processes[1].parent = Some(ProcessId::new(0));
    waits(&mut recording, 0, 11, 250);
    // Nobody knows this one.
    waits(&mut recording, 0, 77, 40);
    waits(&mut recording, 0, 78, 3);
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.total_ns(), 500 * MS);
    let of = |process, reason| {
        let rows = ledger.rows.iter();
        let row = rows.filter(|row| (row.process, row.reason) == (process, reason));
        row.map(|row| row.ns / MS).sum::<u64>()
    };
    assert_eq!(of(Some(ProcessId::new(1)), Reason::End), 50);
    assert_eq!(of(Some(ProcessId::new(0)), Reason::End), 107);
    assert_eq!(of(None, Reason::Brief), 3);
    assert_eq!(of(None, Reason::NotSampled), 40);
    assert_eq!(
        (ledger.strangers[0].pid, ledger.strangers[0].ns),
        (77, 40 * MS)
    );
}

/// A tracer is told of each end first, and the kernel charges it to the parent alone.
#[test]
fn an_end_that_a_tracer_was_told_of_counts_once() {
    let mut recording = command(500);
    run(&mut recording, 10, 0, 49, Some(50));
    run(&mut recording, 11, 0, 99, Some(100));
    run(&mut recording, 12, 0, 199, Some(200));
    recording.processes[1].parent = Some(ProcessId::new(0));
    recording.processes[2].parent = Some(ProcessId::new(1));
    for (waiter, time_ns) in [(0, 1000), (1, 2000)] {
        waits(&mut recording, waiter, 12, 210);
        waits(&mut recording, waiter, 77, 40);
        for child in &mut recording.processes[waiter].children {
            child.time_ns = time_ns;
        }
    }
    // What the tracer's own clock of its children never showed.
    recording.processes[0].end.as_mut().unwrap().children_ns = 0;
    waits(&mut recording, 0, 11, 370);
    recording.processes[0].children[2].time_ns = 3000;
    recording.processes[0].end.as_mut().unwrap().children_ns = 370;
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.total_ns(), 500 * MS);
    let of = |process| {
        let rows = ledger.rows.iter().filter(|row| row.process == process);
        rows.map(|row| row.ns / MS).sum::<u64>()
    };
    let each = [0, 1, 2].map(|index| of(Some(ProcessId::new(index))));
    assert_eq!(each, [130, 120, 210]);
    assert_eq!(of(None), 40);
    let [stranger] = ledger.strangers[..] else {
        panic!("{:?}", ledger.strangers);
    };
    assert_eq!(stranger.parent, ProcessId::new(1));
}

/// It waits for each thread, and is told what the whole process has used.
#[test]
fn the_end_of_a_thread_that_a_tracer_was_told_of_is_no_process() {
    let mut recording = command(260);
    run(&mut recording, 10, 0, 49, Some(50));
    run(&mut recording, 11, 0, 99, Some(100));
    recording.processes[1].parent = Some(ProcessId::new(0));
    recording.processes[1].end.as_mut().unwrap().cpu_ns = 200 * MS;
    // Another thread of it.
    run(&mut recording, 12, 0, 99, Some(100));
    recording.processes.pop();
    recording.threads[2].process = ProcessId::new(1);
    waits(&mut recording, 0, 12, 200);
    recording.processes[0].end.as_mut().unwrap().children_ns = 0;
    waits(&mut recording, 0, 11, 205);
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.strangers, []);
    assert_eq!(of_each(&ledger, 2), [55, 205], "{ledger:?}");
    assert_eq!(ledger.total_ns(), 260 * MS);
}

#[test]
fn what_libc_waited_for_itself_is_known_by_its_time_if_it_is_one() {
    for (others, end_ms) in [(0, 50), (1, 0)] {
        let mut recording = command(500);
        run(&mut recording, 10, 0, 99, Some(100));
        for pid in 11..=11 + others {
            run(&mut recording, pid, 0, 199, Some(200));
            recording.processes.last_mut().unwrap().parent = Some(ProcessId::new(0));
        }
        waits(&mut recording, 0, 0, 250);
        let ledger = Ledger::of(&recording);
        let rows = ledger.rows.iter();
        let ends =
            rows.filter(|row| row.reason == Reason::End && row.process == Some(ProcessId::new(1)));
        let ends: u64 = ends.map(|row| row.ns / MS).sum();
        assert_eq!(ends, end_ms, "{others}: {ledger:?}");
        assert!(ledger.strangers.is_empty());
    }
}

#[test]
fn processes_that_nobody_waits_for_come_on_top() {
    let mut recording = command(110);
    run(&mut recording, 10, 0, 99, Some(100));
    run(&mut recording, 11, 0, 199, None);
    recording.processes[1].parent = Some(ProcessId::new(0));
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.total_ns(), 310 * MS);
    assert_eq!(ledger.unwaited, [(ProcessId::new(1), 200 * MS)]);
    // It is named as what it was last.
    run(&mut recording, 11, 200, 9, None);
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.unwaited, [(ProcessId::new(2), 210 * MS)]);
}

/// One that was so brief that it has no recording waited for one that was not, if what it was
/// charged has room for that; a daemon's first process waits for nobody.
#[test]
fn what_a_process_without_a_recording_waited_for_is_in_its_charge() {
    for (charged_ms, unwaited) in [(201, vec![]), (1, vec![(ProcessId::new(1), 200 * MS)])] {
        let mut recording = command(100 + charged_ms);
        run(&mut recording, 10, 0, 99, Some(100));
        run(&mut recording, 12, 0, 199, Some(200));
        recording.processes[1].parent = Some(ProcessId::new(0));
        recording.processes[1].parent_pid = 11;
        waits(&mut recording, 0, 11, charged_ms);
        let ledger = Ledger::of(&recording);
        assert_eq!(ledger.total_ns(), 301 * MS, "{ledger:?}");
        assert_eq!(ledger.unwaited, unwaited, "{ledger:?}");
    }
}

#[test]
fn a_process_that_was_killed_is_charged_to_its_end() {
    let mut recording = command(150);
    run(&mut recording, 10, 0, 99, None);
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.total_ns(), 150 * MS);
    assert_eq!(ledger.of_reason(Reason::End), 50 * MS);
}

#[test]
fn nothing_is_more_than_all() {
    let mut recording = command(90);
    run(&mut recording, 10, 0, 150, Some(100));
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.total_ns(), 90 * MS);
    assert!(ledger.of_reason(Reason::Sampled) <= 90 * MS);
    // Without a collector the processes' own clocks are all.
    recording.session = None;
    let ledger = Ledger::of(&recording);
    assert!(!ledger.is_closed);
    assert_eq!(
        ledger.total_ns(),
        151 * MS,
        "the thread's clock was that far"
    );
}

/// What each process has, ms.
fn of_each(ledger: &Ledger, processes: u32) -> Vec<u64> {
    let of = |process| {
        let rows = ledger.rows.iter();
        let rows = rows.filter(|row| row.process == Some(ProcessId::new(process)));
        rows.map(|row| row.ns / MS).sum()
    };
    (0..processes).map(of).collect()
}

/// Makes the newest program run one whose stacks were copied.
fn copied(recording: &mut Recording) {
    let process = recording.processes.last_mut().unwrap();
    (process.cpu_ns, process.thread_cpu_ns, process.end) = (0, 0, None);
    let thread = recording.threads.last_mut().unwrap();
    thread.armings[0].signal = 0;
    thread.armings[0].unarmed_cpu_ns = 0;
    thread.totals.unarmed_cpu_ns = 0;
}

#[test]
fn what_a_copied_program_waited_for_is_in_no_other_account() {
    let mut recording = command(1000);
    run(&mut recording, 10, 0, 99, Some(100));
    run(&mut recording, 11, 0, 200, None);
    copied(&mut recording);
    recording.processes[1].parent = Some(ProcessId::new(0));
    run(&mut recording, 12, 0, 149, Some(150));
    run(&mut recording, 13, 0, 99, None);
    recording.processes[2].parent = Some(ProcessId::new(1));
    recording.processes[3].parent = Some(ProcessId::new(1));
    // That and those of its children, and 50 ms for their ends.
    waits(&mut recording, 0, 11, 201 + 150 + 100 + 50);
    recording.session.as_mut().unwrap().charged_ns = 601 * MS;
    let ledger = Ledger::of(&recording);
    assert_eq!(of_each(&ledger, 4), [100, 251, 150, 100]);
    assert_eq!(ledger.of_reason(Reason::End), 50 * MS);
    assert_eq!(ledger.total_ns(), 601 * MS);
    assert_eq!(ledger.unwaited, []);
}

/// A program that ends by a system call of its own says nothing then, and waits like that, too:
/// Go's.
#[test]
fn what_a_program_waited_for_that_said_nothing_at_its_end_counts_once() {
    for has_replaced_another in [false, true] {
        let mut recording = command(360);
        if has_replaced_another {
            run(&mut recording, 10, 0, 99, Some(100));
        }
        let parent = recording.processes.len();
        run(&mut recording, 10, 100 * parent as u64, 49, None);
        run(&mut recording, 11, 0, 199, Some(200));
        recording.processes[parent + 1].parent = Some(ProcessId::next_of(parent));
        let ledger = Ledger::of(&recording);
        assert_eq!(of_each(&ledger, 3)[parent + 1], 200, "{ledger:?}");
        assert_eq!(ledger.total_ns(), 360 * MS, "{ledger:?}");
        assert_eq!(ledger.unwaited, [], "{ledger:?}");
    }
}

/// One that was killed: its own end, and not a child that outlives it, is what is left.
#[test]
fn the_end_of_a_killed_program_is_not_taken_for_a_child_that_has_no_room_in_it() {
    let mut recording = command(150);
    run(&mut recording, 10, 0, 99, None);
    run(&mut recording, 11, 0, 199, None);
    recording.processes[1].parent = Some(ProcessId::new(0));
    let ledger = Ledger::of(&recording);
    assert_eq!(of_each(&ledger, 2), [150, 200]);
    assert_eq!(ledger.of_reason(Reason::End), 50 * MS);
}

#[test]
fn a_child_with_a_number_of_its_own_world_is_whom_its_parent_waited_for() {
    let mut recording = command(360);
    run(&mut recording, 10, 0, 99, Some(100));
    run(&mut recording, 1, 0, 199, Some(200));
    let child = &mut recording.processes[1];
    (child.pid_namespace, child.ns_pids) = (77, vec![1]);
    (
        recording.processes[0].pid_namespace,
        recording.processes[0].ns_pids,
    ) = (5, vec![10]);
    waits(&mut recording, 0, 4711, 260);
    let ledger = Ledger::of(&recording);
    assert_eq!(of_each(&ledger, 2), [100, 260]);
    assert_eq!(ledger.strangers, []);
    assert_eq!(ledger.total_ns(), 360 * MS);
}

#[test]
fn what_passed_before_a_thread_was_armed_is_its_own() {
    let mut recording = command(180);
    run(&mut recording, 10, 0, 99, Some(100));
    recording.processes[0].end.as_mut().unwrap().cpu_ns = 180 * MS;
    // Another thread of it.
    run(&mut recording, 11, 79, 0, None);
    recording.processes.pop();
    recording.threads[1].process = ProcessId::new(0);
    let ledger = Ledger::of(&recording);
    let rows = ledger.rows.iter();
    let before: Vec<_> = rows
        .filter(|row| row.reason == Reason::BeforeArmed)
        .map(|row| (row.thread, row.ns / MS))
        .collect();
    let [main, other] = [0, 1].map(|index| Some(ThreadId::next_of(index)));
    assert_eq!(before, [(main, 1), (other, 80)]);
    assert_eq!(ledger.total_ns(), 180 * MS);
}

/// As a static program where nothing is copied, which waits for a child by a call of its own.
#[test]
fn a_program_that_is_not_in_the_recording_is_not_the_end_of_the_one_before() {
    let mut recording = command(1000);
    run(&mut recording, 10, 0, 99, Some(100));
    let event = |time_ns, kind| Event {
        kind,
        time_ns,
        value: 0,
        text: "/bin/static".to_owned(),
    };
    let process = &mut recording.processes[0];
    process.end.as_mut().unwrap().reason = ThreadEndReason::Exec;
    process.events.push(event(1, EventKind::Exec));
    run(&mut recording, 20, 0, 299, Some(300));
    recording.processes[1].parent = Some(ProcessId::new(0));
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.of_reason(Reason::NotSampled), 600 * MS);
    assert_eq!(ledger.of_reason(Reason::End), 0);
    assert_eq!(ledger.total_ns(), 1000 * MS);
    // It failed, and the process went on to its end.
    let events = &mut recording.processes[0].events;
    events.push(event(2, EventKind::ExecFailed));
    recording.processes.pop();
    recording.threads.pop();
    recording.samples.pop();
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.of_reason(Reason::End), 900 * MS);
    assert_eq!(ledger.of_reason(Reason::NotSampled), 0);
}

/// Copied, so that no program says where its clock stood.
#[test]
fn a_thread_that_calls_exec_goes_on_as_the_first() {
    let mut recording = command(0);
    let thread = |recording: &mut Recording, tid, unarmed_ms: u64, samples, reason| {
        let thread = recording.threads.last_mut().unwrap();
        thread.tid = tid;
        thread.armings[0].signal = 0;
        thread.armings[0].unarmed_cpu_ns = unarmed_ms * MS;
        thread.totals.unarmed_cpu_ns = unarmed_ms * MS;
        thread.totals.cpu_ns = (unarmed_ms + samples) * MS;
        thread.end = Some(ThreadEnd {
            time_ns: 0,
            cpu_ns: (unarmed_ms + samples) * MS,
            reason,
        });
    };
    run(&mut recording, 10, 0, 20, None);
    thread(&mut recording, 10, 0, 20, ThreadEndReason::ThreadExit);
    run(&mut recording, 10, 0, 50, None);
    thread(&mut recording, 11, 0, 50, ThreadEndReason::Exec);
    recording.processes.pop();
    recording.threads[1].process = ProcessId::new(0);
    run(&mut recording, 10, 0, 40, None);
    recording.threads[2].process = ProcessId::new(1);
    thread(&mut recording, 10, 50, 40, ThreadEndReason::Stopped);
    assert_eq!(ms(&Ledger::of(&recording)), [(Reason::Sampled, 110)]);
}

/// The library was brought into it just before, and has said nothing yet.
#[test]
fn what_was_copied_before_exec_is_not_of_the_next_program() {
    let mut recording = command(0);
    run(&mut recording, 10, 0, 303, None);
    run(&mut recording, 10, 303, 434, None);
    for (index, unarmed_ms, cpu_ms) in [(0, 0, 0), (1, 303, 737)] {
        recording.processes[index].cpu_ns = 0;
        let thread = &mut recording.threads[index];
        thread.armings[0].signal = 0;
        thread.armings[0].unarmed_cpu_ns = unarmed_ms * MS;
        thread.totals.unarmed_cpu_ns = unarmed_ms * MS;
        thread.totals.cpu_ns = cpu_ms * MS;
    }
    assert_eq!(ms(&Ledger::of(&recording)), [(Reason::Sampled, 737)]);
}

#[test]
fn each_of_several_recordings_has_its_command() {
    let mut recording = command(300);
    recording.other_sessions.push(SessionInfo {
        pid: 20,
        charged_ns: 500 * MS,
        ..SessionInfo::default()
    });
    run(&mut recording, 20, 0, 99, Some(100));
    run(&mut recording, 10, 0, 99, Some(100));
    let ledger = Ledger::of(&recording);
    assert_eq!(ledger.total_ns(), 800 * MS);
    assert_eq!(ledger.of_reason(Reason::End), 600 * MS);
}
