//! What was written is read: every kind of record, chunks in any order, several files at once.

use super::*;
use crate::recording::example::{self, Chunk, head, recording, segment};
use engine::wire::chunk::{HEADER_SIZE as CHUNK_HEADER, SEGMENT_STRIDE};
use engine::wire::kernel::KernelHead;
use engine::wire::module::ModuleGone;
use engine::wire::sample::{Frame, Method, StopReason};
use engine::wire::session::{PerfMap, SegmentTotals, Session};
use engine::wire::source::Source;
use engine::wire::thread::ThreadEnd as WireThreadEnd;
use std::collections::BTreeMap;

#[test]
fn a_recording_and_a_segment_read_the_same() {
    for bytes in [recording(&three_chunks()), segment(&three_chunks())] {
        let found = read_whole(bytes);
        assert_eq!(sorted(samples(&found)), all_samples());
        assert_eq!(found.processes.len(), 1);
        let process = &found.processes[0];
        assert_eq!((process.pid, process.name()), (42, "prog"));
        assert_eq!(process.command, ["prog", "--fast"]);
        let names: Vec<_> = found.threads.iter().map(|t| (t.tid, &t.name[..])).collect();
        assert_eq!(names, [(42, "prog"), (43, "worker")]);
        assert_eq!(found.threads[0].unarmed_cpu_ns(), 5);
        assert_eq!(found.modules.len(), 1);
        assert_eq!(found.stacks.len(), 7, "common outer frames are held once");
    }
}

/// The newest of each; the kernel's is often what all threads of an interpreter are called.
#[test]
fn what_a_program_calls_its_threads_stands_before_what_the_kernel_does() {
    let first = own_name(thread(Chunk::new(42, 42, 0), 9, b"python3"), 5, b"serves");
    let other = thread(Chunk::new(42, 43, 1), 2, b"python3");
    let other = own_name(own_name(other, 8, b"renamed"), 4, b"Thread-1 (work)");
    let third = own_name(thread(Chunk::new(42, 44, 2), 2, b"python3"), 4, b"");
    let found = read_whole(recording(&[first, other, third]));
    let names: Vec<_> = found.threads.iter().map(|t| (t.tid, &t.name[..])).collect();
    assert_eq!(names, [(42, "serves"), (43, "renamed"), (44, "python3")]);
}

/// Each has numbers of its own for what it was asked for.
#[test]
fn events_of_several_recordings_keep_their_names() {
    let of = |pid: u32, names: &[&str]| {
        let kernel = |event: u32| KernelHead {
            cursor: event.into(),
            time_ns: event.into(),
            event,
            value: u64::from(pid) + u64::from(event),
            ..KernelHead::default()
        };
        let own = process(Chunk::new(pid, pid, 0), 0, b"prog");
        let own = (1..=names.len() as u32).fold(own, |own, event| own.kernel(kernel(event), &[]));
        let collector = names
            .iter()
            .zip(1..)
            .fold(Chunk::new(0, 0, 0), |chunk, (name, event)| {
                let source = Source {
                    event,
                    lost: 1,
                    name: name.as_bytes(),
                    ..Source::default()
                };
                chunk.record(RecordKind::Source, |out| source.encode(out))
            });
        recording(&[own, collector])
    };
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("1.rsu", of(100, &["page-faults", "cycles"])),
        ("2.rsu", of(200, &["cycles", "context-switches"])),
        ("3.rsu", of(300, &["page-faults"])),
    ];
    let paths = files.map(|(name, bytes)| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    });
    let found = read(&paths).unwrap();
    let named = |event| found.sources.iter().find(|one| one.event == event).unwrap();
    let samples = found.samples.iter();
    let counted = samples.map(|sample| (sample.value, &*named(sample.event).name));
    let counted: BTreeMap<_, _> = counted.collect();
    let wanted = [
        (101, "page-faults"),
        (102, "cycles"),
        (201, "cycles"),
        (202, "context-switches"),
        (301, "page-faults"),
    ];
    assert_eq!(counted, BTreeMap::from(wanted));
    let lost: u64 = found.sources.iter().map(|source| source.lost).sum();
    assert_eq!((found.sources.len(), lost), (3, 5));
}

/// One of two threads had a chunk again after it had none.
#[test]
fn samples_that_found_no_room_are_counted_once() {
    let mut first = process(Chunk::new(42, 42, 0), 0, b"prog").sample(head(5, 1), &[0x1010]);
    (first.info.lost_samples, first.info.lost_weight) = (3, 6);
    let totals = SegmentTotals {
        chunkless_samples: 5,
        chunkless_weight: 9,
        ..SegmentTotals::default()
    };
    let own = Chunk::new(42, 0, 1);
    let own = own.record(RecordKind::SegmentTotals, |out| totals.encode(out));
    let found = read_whole(recording(&[first, own]));
    assert_eq!((found.chunkless_samples, found.chunkless_weight), (2, 3));
    let lost = found.threads.iter().map(|thread| thread.totals.lost_weight);
    assert_eq!(lost.sum::<u64>() + found.chunkless_weight, 9);
}

#[test]
fn only_committed_bytes_count_and_free_and_unused_chunks_are_passed_over() {
    let mut bytes = segment(&three_chunks());
    let unused = bytes.len();
    bytes.resize(unused + 3 * SEGMENT_STRIDE, 0);
    let late = Chunk::new(42, 44, 9).sample(head(50, 1), &[0x1500]);
    bytes.extend_from_slice(&segment(&[late])[FILE_HEADER..]);
    let committed = FILE_HEADER + SEGMENT_STRIDE + 12;
    bytes[FILE_HEADER + 4] = 0; // the first chunk is free
    let kept: u32 = u32::from_le_bytes(bytes[committed..committed + 4].try_into().unwrap());
    let last_record = 8 * u16::from_le_bytes(
        bytes[FILE_HEADER + SEGMENT_STRIDE + CHUNK_HEADER..][..2]
            .try_into()
            .unwrap(),
    );
    bytes[committed..committed + 4].copy_from_slice(&u32::from(last_record).to_le_bytes());
    assert!(u32::from(last_record) < kept);
    bytes[FILE_HEADER + 4 + SEGMENT_STRIDE] = 1; // owned: its process was killed
    // The slot of the free chunk keeps stale records; state says that nobody may read them.
    for slot in 1..3 {
        bytes[FILE_HEADER + slot * SEGMENT_STRIDE + 4] = 1;
    }
    let found = read_whole(bytes);
    assert_eq!(
        sorted(samples(&found)),
        [
            (43, 15, 1, vec![0x1400]),
            (43, 25, 3, vec![0x1400, 0x1300]),
            (44, 50, 1, vec![0x1500])
        ]
    );
}

#[test]
fn modules_are_those_of_the_time_and_of_the_parent() {
    let parent = process(Chunk::new(1, 1, 0), 0, b"a\0");
    let parent = module(parent, 1, 0x1000, b"/lib/first");
    let gone = ModuleGone {
        time_ns: 20,
        start: 0x1000,
    };
    let parent = parent.record(RecordKind::ModuleGone, |out| gone.encode(out));
    let parent = module(parent, 30, 0x1000, b"/lib/second")
        .sample(head(15, 1), &[0x1100])
        .sample(head(40, 1), &[0x1100]);
    let mut child = process(Chunk::new(2, 2, 0), 1, b"a\0");
    child.info.process_key = 1015; // forked while the first one was mapped … in the parent's clock
    let child = child.sample(head(1040, 1), &[0x1100]);
    let found = read_whole(recording(&[parent, child]));
    let path = |sample: &RawSample| match found.walk(sample.stack).next() {
        Some(RawFrame::Code {
            module: Some(id), ..
        }) => found.modules[id.index()].path.clone(),
        other => panic!("{other:?}"),
    };
    let paths: Vec<_> = found.samples.iter().map(path).collect();
    assert_eq!(paths, ["/lib/first", "/lib/second", "/lib/second"]);
    assert_eq!(found.processes[1].parent, Some(ProcessId::new(0)));
}

#[test]
fn elided_frames_are_shown_where_they_were() {
    let mut deep = head(1, 1);
    deep.elided = 70;
    deep.elided_at = 1;
    let chunk = Chunk::new(1, 1, 0)
        .sample(head(1, 1), &[0x10, 0x20, 0x30])
        .sample(deep, &[0x11, 0x20, 0x30])
        .sample(head(1, 1), &[0x12, 0x20, 0x30]);
    let found = read_whole(recording(&[chunk]));
    let stacks: Vec<_> = samples(&found).into_iter().map(|s| s.3).collect();
    assert_eq!(stacks[0], [0x10, 0x20, 0x30]);
    assert_eq!(stacks[1], [0x11, 1_000_000_070, 0x20, 0x30]);
    assert_eq!(stacks[2], [0x12, 0x20, 0x30]);
}

#[test]
fn accounts_of_session_threads_and_jit_are_kept() {
    let session = Session {
        start_ns: 1,
        end_ns: 9,
        host: b"vm",
        command: b"prog\0-x\0",
        ..Session::default()
    };
    let collector = Chunk::new(0, 0, 0).record(RecordKind::Session, |out| session.encode(out));
    let second = PerfMap {
        lines: b"20 10 b\n",
    };
    let first = PerfMap {
        lines: b"10 10 a\n",
    };
    let map = Chunk::new(42, 0, 1).record(RecordKind::PerfMap, |out| second.encode(out));
    let before = Chunk::new(42, 0, 0).record(RecordKind::PerfMap, |out| first.encode(out));
    let end = WireThreadEnd {
        tid: 43,
        thread_key: 43_001,
        cpu_ns: 77,
        ..WireThreadEnd::default()
    };
    let mut chunks = three_chunks();
    chunks.push(Chunk::new(42, 42, 5).record(RecordKind::ThreadEnd, |out| end.encode(out)));
    chunks.extend([map, before, collector]);
    let found = read_whole(recording(&chunks));
    assert_eq!(found.session.as_ref().unwrap().command, ["prog", "-x"]);
    assert_eq!(found.processes[0].perf_map, b"10 10 a\n20 10 b\n");
    assert_eq!(found.threads[1].cpu_ns(), 77);
    assert_eq!(
        found.processes.len(),
        1,
        "the session's chunk makes no process"
    );
}

#[test]
fn a_chunk_that_is_in_two_files_counts_once() {
    let directory = tempfile::tempdir().unwrap();
    let whole = directory.path().join("a.rsu");
    let left = directory.path().join("2a.a410.seg");
    std::fs::write(&whole, recording(&three_chunks())).unwrap();
    std::fs::write(&left, segment(&three_chunks())).unwrap();
    let found = read(&[directory.path()]).unwrap();
    assert_eq!(sorted(samples(&found)), all_samples());
    let twice = read(&[&whole, &whole]).unwrap();
    assert_eq!(sorted(samples(&twice)), all_samples());
    assert_eq!(twice.files.len(), 1);
}

#[test]
fn what_is_no_recording_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let refuse = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = read(&[&path]).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        error
    };
    assert!(refuse("empty", b"").contains("is empty"));
    assert!(refuse("perf.data", b"PERFILE2xxxxxxxxxxxxxxxxxxxxxxx").contains("perf report"));
    assert!(refuse("text", &[b'x'; 9000]).contains("not a recording"));
    let mut whole = recording(&three_chunks());
    assert!(refuse("short", &whole[..100]).contains("ends after 100 bytes"));
    assert!(refuse("stub", &whole[..10]).contains("ends after 10 bytes"));
    whole[8] = 77;
    let newer = refuse("newer", &whole);
    assert!(
        newer.contains("version 77") && newer.contains("later"),
        "{newer}"
    );
    let nowhere = read(&[directory.path().join("missing")]).unwrap_err();
    assert!(nowhere.to_string().contains("check the name"));
    let nothing = tempfile::tempdir().unwrap();
    let nothing = read(&[nothing.path()]).unwrap_err().to_string();
    assert!(nothing.contains("holds no recording"), "{nothing}");
    let device = read(&["/dev/zero"]).unwrap_err().to_string();
    assert!(device.contains("not a regular file"), "{device}");
}

#[test]
fn a_recording_without_samples_is_read() {
    let found = read_whole(example::header().to_bytes().to_vec());
    assert!(found.samples.is_empty() && found.processes.is_empty());
}

#[test]
fn unknown_records_are_passed_over() {
    let mut chunk = Chunk::new(1, 1, 0).sample(head(1, 1), &[0x10]);
    let known = chunk.bytes.len();
    chunk = chunk.sample(head(2, 1), &[0x11]);
    let mut strange = vec![0; 16];
    // A record of kind 200: sealed as a known one, then its kind and check replaced.
    strange[8..].copy_from_slice(b"whatever");
    engine::wire::record::seal(&mut strange, RecordKind::Event, 8).unwrap();
    strange[2] = 200;
    let refused = match engine::wire::record::parse(&strange) {
        Err(WireError::BadCheck { computed, .. }) => computed,
        other => panic!("{other:?}"),
    };
    strange[4..8].copy_from_slice(&refused.to_le_bytes());
    chunk.bytes.splice(known..known, strange);
    chunk.info.committed = u32::try_from(chunk.bytes.len()).unwrap();
    let found = read_whole(recording(&[chunk]));
    assert_eq!(found.samples.len(), 2);
}

#[test]
fn stop_reasons_methods_and_kinds_of_address_are_kept() {
    let frames = [Method::Registers, Method::FramePointer, Method::SignalFrame];
    let frames: Vec<Frame> = frames
        .into_iter()
        .map(|method| Frame::native(engine::address::RuntimeAddress(0x100), method))
        .collect();
    let mut stopped = head(1, 1);
    stopped.stop = StopReason::UnreadableStack;
    let chunk = Chunk::new(1, 1, 0).sample_of(stopped, frames);
    let found = read_whole(recording(&[chunk]));
    assert_eq!(found.samples[0].stop, StopReason::UnreadableStack);
    let lookups: Vec<u64> = found
        .walk(found.samples[0].stack)
        .map(|frame| match frame {
            RawFrame::Code { frame, .. } => frame.lookup().0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lookups, [0x100, 0xff, 0x100]);
}
