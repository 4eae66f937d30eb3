use super::*;
use crate::recording::example::stackless;
use crate::recording::{Arming, RawSample, SessionInfo, Thread, ThreadEnd, Totals};
use engine::wire::charge::{ChildEnd, ProcessEnd};
use engine::wire::sample::Trigger;
use engine::wire::thread::ThreadEndReason;

const MS: u64 = 1_000_000;

/// A process with one thread, its first.
fn process(recording: &mut Recording, pid: u32, parent_pid: u32, began_ms: u64) {
    let process = ProcessId::next_of(recording.processes.len());
    recording.processes.push(Process {
        pid,
        parent_pid,
        origin: match began_ms {
            0 => Origin::Fork,
            _ => Origin::Exec,
        },
        key: u64::from(pid),
        cpu_ns: began_ms * MS,
        thread_cpu_ns: began_ms * MS,
        ..Process::default()
    });
    let arming = Arming {
        time_ns: 0,
        trigger: Trigger::PerfKernel,
        period_ns: 10 * MS,
        periods: 1,
        refused: 0,
        signal: 23,
        unarmed_cpu_ns: (began_ms + 1) * MS,
    };
    recording.threads.push(Thread {
        process,
        tid: pid,
        key: u64::from(pid),
        name: String::new(),
        armings: vec![arming],
        end: None,
        totals: Totals::default(),
        late_cpu_ns: 0,
    });
}

fn sample(thread: u32, weight: u64) -> RawSample {
    stackless(ThreadId::new(thread), weight)
}

fn ends(recording: &mut Recording, at: usize, time_ns: u64, cpu_ms: u64) {
    recording.threads[at].end = Some(ThreadEnd {
        time_ns,
        cpu_ns: cpu_ms * MS,
        reason: ThreadEndReason::ProcessExit,
    });
    recording.processes[at].end = Some(ProcessEnd {
        time_ns,
        cpu_ns: (cpu_ms + 20) * MS,
        children_ns: 0,
        reason: ThreadEndReason::ProcessExit,
    });
}

/// Enters a window, and gives its rows in ms. The books go through their JSON.
fn enter(books: &mut Books, recording: &Recording, after: u64, until: u64) -> Vec<(Reason, u64)> {
    let text = books.encode().to_string();
    *books = Books::decode(&serde_json::from_str(&text).unwrap()).unwrap();
    let rows = books.enter(recording, after, until);
    rows.iter().map(|row| (row.reason, row.ns / MS)).collect()
}

#[test]
fn what_no_sample_has_is_in_the_window_in_which_it_is_known_and_adds_up() {
    let mut recording = Recording::default();
    process(&mut recording, 10, 1, 30);
    process(&mut recording, 11, 10, 0);
    recording.samples = vec![sample(0, 5), sample(1, 4)];
    let mut books = Books::default();
    assert_eq!(
        enter(&mut books, &recording, 0, 100),
        [],
        "nothing has ended"
    );
    // The child ends: 75 ms of its thread, 95 of itself, 120 with the removal of its memory.
    recording.samples = vec![sample(1, 2)];
    ends(&mut recording, 1, 150, 75);
    recording.processes[0].children.push(ChildEnd {
        time_ns: 160,
        pid: 11,
        charged_ns: 120 * MS,
        ..ChildEnd::default()
    });
    assert_eq!(
        enter(&mut books, &recording, 100, 200),
        [
            (Reason::BetweenSamples, 10),
            (Reason::Threads, 20),
            (Reason::End, 20)
        ]
    );
    // They are told of again, until they are carried away.
    recording.samples.clear();
    assert_eq!(enter(&mut books, &recording, 200, 300), []);
    // The command: 30 before it was armed, 50 sampled, 4 since; 20 in no thread. 60 of a child that
    // nobody saw.
    ends(&mut recording, 0, 350, 84);
    recording.session = Some(SessionInfo {
        charged_ns: (120 + 84 + 20 + 60) * MS,
        ..SessionInfo::default()
    });
    let rows = enter(&mut books, &recording, 300, u64::MAX);
    let sum: u64 = rows.iter().map(|(_, ms)| ms).sum();
    let sampled = 50 + 60;
    let sent = 50;
    assert!(rows.contains(&(Reason::Exec, 30)) && rows.contains(&(Reason::Threads, 20)));
    assert!(sampled + sent + sum >= 120 + 84 + 20 + 60 - 10, "{rows:?}");
    assert!(sampled + sent + sum <= 120 + 84 + 20 + 60 + 10, "{rows:?}");
}

#[test]
fn a_window_that_was_lost_is_time_in_no_sample() {
    let mut recording = Recording::default();
    process(&mut recording, 10, 1, 0);
    let mut books = Books::default();
    recording.samples = vec![sample(0, 3)];
    enter(&mut books, &recording, 0, 100);
    // 70 ms were sampled, and nobody could read them.
    recording.samples = vec![sample(0, 2)];
    ends(&mut recording, 0, 350, 120);
    let rows = enter(&mut books, &recording, 200, 400);
    let between = (Reason::BetweenSamples, 60);
    assert_eq!(rows, [between, (Reason::Threads, 20)]);
}

#[test]
fn a_thread_whose_name_is_the_kernels_until_it_says_its_own_is_the_same() {
    let mut recording = Recording::default();
    process(&mut recording, 10, 1, 0);
    let mut books = Books::default();
    recording.samples = vec![sample(0, 5)];
    assert_eq!(enter(&mut books, &recording, 0, 100), []);
    recording.processes[0].key += 1;
    recording.threads[0].key += 2;
    recording.adopted.insert((10, 10, 10, 10), (10, 11, 10, 12));
    recording.samples.clear();
    ends(&mut recording, 0, 150, 75);
    let rows = enter(&mut books, &recording, 100, 200);
    assert_eq!(rows, [(Reason::BetweenSamples, 20), (Reason::Threads, 20)]);
}

#[test]
fn damaged_books_are_none() {
    let mut value = Books::default().encode();
    assert_eq!(Books::decode(&value), Some(Books::default()));
    value["lives"] = json!([[1, 2, 3]]);
    assert_eq!(Books::decode(&value), None);
    assert_eq!(Books::decode(&json!({})), None);
}
