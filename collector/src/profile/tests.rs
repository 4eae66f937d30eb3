//! Profiles of recordings made for the test. Their code is named by a JIT's map in the recording,
//! so that no file is needed.

use super::*;
use crate::correlate;
use crate::recording::example::{Chunk, head, recording};
use engine::wire::process::Process as WireProcess;
use engine::wire::record::RecordKind;
use engine::wire::sample::{Frame as WireFrame, Trigger};
use engine::wire::session::PerfMap;
use engine::wire::thread::{Thread as WireThread, ThreadEnd};

const NAMES: &[u8] =
    b"1000 100 _start\n1100 100 main\n1200 100 work; more\n1300 100 leaf\n2000 100 clone3\n";

fn thread(chunk: Chunk, name: &[u8], trigger: Trigger, refused: u32) -> Chunk {
    let found = WireThread {
        time_ns: 1_000_000,
        trigger,
        period_ns: 1_000_000,
        periods: 1,
        refused,
        signal: 23,
        unarmed_cpu_ns: 200_000,
        name,
    };
    chunk.record(RecordKind::Thread, |out| found.encode(out))
}

fn end(chunk: Chunk, cpu_ns: u64) -> Chunk {
    let found = ThreadEnd {
        tid: chunk.info.tid,
        thread_key: chunk.info.thread_key,
        time_ns: 90_000_000,
        cpu_ns,
        ..ThreadEnd::default()
    };
    chunk.record(RecordKind::ThreadEnd, |out| found.encode(out))
}

/// Two threads: a main one with whole stacks, one that calls itself and one with a gap, and a
/// worker whose stack was cut off.
pub(crate) fn example() -> Profile {
    let process = WireProcess {
        executable: b"/nonexistent/prog",
        command: b"prog\0--fast\0",
        time_ns: 1_000_000,
        period_ns: 1_000_000,
        realtime_offset_ns: 1_700_000_000_000_000_000,
        ..WireProcess::default()
    };
    let main = Chunk::new(10, 10, 0).record(RecordKind::Process, |out| process.encode(out));
    let mut deep = head(5_000_000, 1);
    deep.elided = 5;
    deep.elided_at = 1;
    let main = thread(main, b"prog", Trigger::PerfUser, 13)
        .sample(head(2_000_000, 2), &[0x1310, 0x1251, 0x1151, 0x1051])
        .sample(head(3_000_000, 1), &[0x1310, 0x1321, 0x1151, 0x1051])
        .sample(deep, &[0x1310, 0x1151, 0x1051]);
    let main = end(main, 4_200_000);
    let mut cut = head(4_000_000, 3);
    cut.stop = StopReason::NoRow;
    let method = Method::Registers;
    let pc = engine::address::RuntimeAddress(0x1210);
    let worker = thread(Chunk::new(10, 11, 1), b"worker", Trigger::Timer, 1)
        .sample_of(cut, vec![WireFrame::native(pc, method)]);
    let mut worker = end(worker, 3_200_000);
    worker.info.handler_ns = 21_000;
    let map = PerfMap { lines: NAMES };
    let map = Chunk::new(10, 0, 0).record(RecordKind::PerfMap, |out| map.encode(out));
    let bytes = recording(&[main, worker, map]);
    let found = correlate::read_bytes("example.rsu", bytes).unwrap();
    assert_eq!(found.damage_count(), 0);
    Profile::new(found, &Places::default())
}

fn names(profile: &Profile, sample: usize) -> Vec<&str> {
    let frames = profile.walk(profile.samples[sample].stack);
    frames.map(|frame| &*profile.function(frame).name).collect()
}

#[test]
fn stacks_have_names_and_what_is_missing_is_a_frame() {
    let profile = example();
    assert_eq!(names(&profile, 0), ["leaf", "work; more", "main", "_start"]);
    assert_eq!(names(&profile, 1), ["leaf", "leaf", "main", "_start"]);
    assert_eq!(
        names(&profile, 2),
        ["leaf", "[5 frames elided]", "main", "_start"]
    );
    assert_eq!(
        names(&profile, 3),
        ["work; more", "[truncated: no unwind information]"]
    );
    let complete: Vec<bool> = profile
        .samples
        .iter()
        .map(|sample| sample.complete)
        .collect();
    assert_eq!(complete, [true, true, true, false]);
    assert_eq!(profile.functions.len(), 6, "a function is held once");
}

#[test]
fn filters_go_by_number_or_name_and_say_what_there_is() {
    let keep = |filter: Filter| {
        let mut profile = example();
        filter.apply(&mut profile).map(|()| profile.samples.len())
    };
    let threads = |name: &str| Filter {
        threads: vec![name.to_owned()],
        ..Filter::default()
    };
    assert_eq!(keep(threads("11")).unwrap(), 1);
    assert_eq!(keep(threads("prog")).unwrap(), 3);
    let error = keep(threads("nobody")).unwrap_err().to_string();
    assert!(
        error.contains("nobody") && error.contains("worker (11)"),
        "{error}"
    );
    let process = Filter {
        processes: vec!["10".to_owned()],
        ..Filter::default()
    };
    assert_eq!(keep(process).unwrap(), 4);
}

#[test]
fn what_is_in_no_sample_is_weighed_too() {
    let mut recording = example().recording;
    recording.session = Some(crate::recording::SessionInfo {
        pid: 10,
        charged_ns: 20_000_000,
        ..Default::default()
    });
    let mut profile = Profile::new(recording, &Places::default());
    let weight = |profile: &Profile| profile.weighed().map(|sample| sample.weight).sum::<u64>();
    assert_eq!(weight(&profile), 20);
    let [end] = &profile.remainders[..] else {
        panic!("{:?}", profile.remainders);
    };
    let frame = profile.walk(end.stack).next().unwrap();
    assert_eq!(&*profile.function(frame).name, "[end of the process]");
    assert_eq!(profile.samples.len(), 4, "they are no samples");
    let gil = Filter {
        gil: true,
        ..Filter::default()
    };
    assert!(!gil.is_empty());
    let nobody = Filter {
        threads: vec!["worker".to_owned()],
        ..Filter::default()
    };
    nobody.apply(&mut profile).unwrap();
    assert_eq!(weight(&profile), 3);
}

#[test]
fn filters_go_by_function_binary_and_time() {
    let keep = |filter: Filter| {
        let mut profile = example();
        filter.apply(&mut profile).unwrap();
        let samples = profile.samples.iter();
        samples.map(|sample| sample.weight).collect::<Vec<_>>()
    };
    let regex = |text: &str| vec![regex::Regex::new(text).unwrap()];
    let of = |focus, ignore, modules| Filter {
        focus,
        ignore,
        modules,
        ..Filter::default()
    };
    let none = Vec::new;
    assert_eq!(keep(of(regex("^work"), none(), none())), [2, 3]);
    assert_eq!(keep(of(none(), regex("^work"), none())), [1, 1]);
    assert_eq!(keep(of(regex("start"), regex("more|elided"), none())), [1]);
    assert_eq!(keep(of(none(), none(), regex("^.anonymous"))), [2, 1, 1, 3]);
    assert_eq!(keep(of(none(), none(), regex("libc"))), [0; 0]);
    let time = |from_ns, to_ns| Filter {
        from_ns,
        to_ns,
        ..Filter::default()
    };
    // The process began at 1 ms, its samples are at 2, 3, 5 and 4.
    assert_eq!(keep(time(Some(2_000_000), None)), [1, 1, 3]);
    assert_eq!(keep(time(None, Some(2_000_000))), [2]);
    assert_eq!(keep(time(Some(2_000_000), Some(3_000_000))), [1]);
}
