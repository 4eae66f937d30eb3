//! Recordings made with the wire encoders, whole and damaged, read back.

use super::example::{Chunk, absences, head, recording, segment};
use super::*;
use engine::address::CodeAddress;
use engine::wire::chunk::{HEADER_SIZE as CHUNK_HEADER, SEGMENT_STRIDE};
use engine::wire::kernel::{self, KernelHead};
use engine::wire::module::{Module as WireModule, ModuleGone};
use engine::wire::process::{Origin, Process as WireProcess};
use engine::wire::record::RecordKind;
use engine::wire::sample::{Frame, Method, SampleHead, StopReason, Trigger};
use engine::wire::session::{PerfMap, Session};
use engine::wire::thread::{Thread as WireThread, ThreadEnd as WireThreadEnd};

const FILE_HEADER: usize = file::HEADER_SIZE;

fn process(chunk: Chunk, parent: u32, command: &[u8]) -> Chunk {
    let found = WireProcess {
        origin: if parent == 0 {
            Origin::Exec
        } else {
            Origin::Fork
        },
        parent_pid: parent,
        parent_key: u64::from(parent) * 1000,
        command,
        executable: b"/usr/bin/prog",
        period_ns: 1_000_000,
        ..WireProcess::default()
    };
    chunk.record(RecordKind::Process, |out| found.encode(out))
}

fn module(chunk: Chunk, time_ns: u64, start: u64, path: &[u8]) -> Chunk {
    let found = WireModule {
        time_ns,
        start,
        end: start + 0x1000,
        bias: start,
        build_id: &[7],
        path,
    };
    chunk.record(RecordKind::Module, |out| found.encode(out))
}

fn thread(chunk: Chunk, time_ns: u64, name: &[u8]) -> Chunk {
    let found = WireThread {
        time_ns,
        trigger: Trigger::PerfUser,
        period_ns: 1_000_000,
        refused: 0,
        unarmed_cpu_ns: 5,
        name,
    };
    chunk.record(RecordKind::Thread, |out| found.encode(out))
}

/// Two threads of one process, the first with two chunks that lie in the file in the wrong order.
fn three_chunks() -> Vec<Chunk> {
    let first = Chunk::new(42, 42, 0);
    let first = process(first, 0, b"prog\0--fast\0");
    let first = module(first, 1, 0x1000, b"/bin/a");
    let first = thread(first, 1, b"prog")
        .sample(head(10, 1), &[0x1100, 0x1200, 0x1300])
        .sample(head(20, 1), &[0x1110, 0x1200, 0x1300]);
    let second = Chunk::new(42, 42, 2).sample(head(30, 2), &[0x1120, 0x1200, 0x1300]);
    let other = thread(Chunk::new(42, 43, 1), 2, b"worker")
        .sample(head(15, 1), &[0x1400])
        .sample(head(25, 3), &[0x1400, 0x1300]);
    vec![second, first, other]
}

fn samples(found: &Recording) -> Vec<(u32, u64, u64, Vec<u64>)> {
    let pcs = |sample: &RawSample| {
        found
            .walk(sample.stack)
            .map(|frame| match frame {
                RawFrame::Code {
                    frame: CodeAddress::Instruction(at) | CodeAddress::Return(at),
                    ..
                } => at.0,
                RawFrame::Elided(count) => 1_000_000_000 + count,
                RawFrame::Kernel(CodeAddress::Instruction(at) | CodeAddress::Return(at)) => at.0,
                RawFrame::Lost => 0,
            })
            .collect()
    };
    found
        .samples
        .iter()
        .map(|s| {
            let tid = found.threads[s.thread.index()].tid;
            (tid, s.time_ns, s.weight, pcs(s))
        })
        .collect()
}

fn all_samples() -> Vec<(u32, u64, u64, Vec<u64>)> {
    vec![
        (42, 10, 1, vec![0x1100, 0x1200, 0x1300]),
        (42, 20, 1, vec![0x1110, 0x1200, 0x1300]),
        (42, 30, 2, vec![0x1120, 0x1200, 0x1300]),
        (43, 15, 1, vec![0x1400]),
        (43, 25, 3, vec![0x1400, 0x1300]),
    ]
}

fn sorted(mut found: Vec<(u32, u64, u64, Vec<u64>)>) -> Vec<(u32, u64, u64, Vec<u64>)> {
    found.sort();
    found
}

fn read_whole(bytes: Vec<u8>) -> Recording {
    let found = read_bytes("test.rsu", bytes).unwrap();
    let damages: Vec<_> = found.files.iter().flat_map(|f| &f.damages.listed).collect();
    assert_eq!(damages, Vec::<&Damage>::new());
    found
}

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
    assert_eq!(found.processes[1].parent, Some(ProcessId(0)));
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

/// Every kind of place in a file, by offset, with what must survive damage there.
#[test]
fn behind_a_flipped_byte_everything_else_is_recovered() {
    let whole = recording(&three_chunks());
    let all = all_samples();
    let mut recovered_all = 0;
    for at in FILE_HEADER..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        let found = read_bytes("flipped.rsu", bytes).unwrap();
        let kept = samples(&found);
        let weight: u64 = kept.iter().map(|s| s.2).sum();
        assert!(weight <= 8, "byte {at:#x}: weight came out of nothing");
        assert!(
            kept.len() >= 3,
            "byte {at:#x}: more was lost than a chunk: {kept:?}"
        );
        for (tid, _, weight, pcs) in &kept {
            let known = |s: &(u32, u64, u64, Vec<u64>)| s.2 == *weight && s.3.starts_with(pcs);
            let inner = || pcs.strip_suffix(&[0]).is_some();
            let real = all.iter().any(known) || inner();
            assert!(real, "byte {at:#x}: an invented sample of {tid}: {pcs:x?}");
        }
        if sorted(kept) == all {
            recovered_all += 1;
        } else {
            let silent = found.damage_count() == 0 && found.processes.len() == 1;
            let header_field = chunk_header_field(&whole, at);
            assert!(
                !silent || header_field,
                "byte {at:#x}: a loss without a word"
            );
        }
    }
    assert!(recovered_all > 0);
}

fn chunk_header_field(whole: &[u8], at: usize) -> bool {
    let magic = engine::wire::chunk::MAGIC.to_le_bytes();
    let starts = (0..whole.len()).filter(|start| whole[*start..].starts_with(&magic));
    starts
        .into_iter()
        .any(|start| (start..start + CHUNK_HEADER).contains(&at))
}

#[test]
fn a_damaged_sample_costs_itself_and_the_root_of_those_that_lean_on_it() {
    let chunk = Chunk::new(1, 1, 0)
        .sample(head(10, 1), &[0x10, 0x20, 0x30])
        .sample(head(20, 1), &[0x11, 0x20, 0x30])
        .sample(head(30, 1), &[0x12, 0x21, 0x30])
        .sample(head(40, 1), &[0x13, 0x14]);
    let mut bytes = recording(&[chunk]);
    let first = FILE_HEADER + CHUNK_HEADER;
    let length = 8 * usize::from(bytes[first]);
    bytes[first + length + 10] ^= 1; // in the second sample
    let found = read_bytes("x.rsu", bytes).unwrap();
    let stacks: Vec<_> = samples(&found).into_iter().map(|s| s.3).collect();
    assert_eq!(
        stacks,
        [
            vec![0x10, 0x20, 0x30],
            vec![0x12, 0x21, 0],
            vec![0x13, 0x14]
        ]
    );
    let damage = &found.files[0].damages.listed[0];
    assert_eq!(damage.offset, (first + length) as u64);
    assert!(damage.what.contains("its check"), "{damage}");
}

#[test]
fn a_cut_file_keeps_what_is_whole() {
    let whole = recording(&three_chunks());
    let mut most = 0;
    for length in FILE_HEADER..whole.len() {
        let found = read_bytes("cut.rsu", whole[..length].to_vec()).unwrap();
        let kept = samples(&found);
        assert!(kept.len() >= most, "a longer file gave less at {length}");
        let told = &found.files[0].damages.listed;
        let missing = whole.len() - length;
        let last = told.last().map(ToString::to_string).unwrap_or_default();
        assert!(last.contains(&format!("last {missing} bytes")), "{told:?}");
        most = kept.len();
        assert!(kept.iter().all(|kept| all_samples().contains(kept)));
    }
    assert_eq!(most, 5);
}

#[test]
fn inserted_and_missing_bytes_cost_one_chunk_at_most() {
    let whole = recording(&three_chunks());
    for at in (FILE_HEADER..whole.len()).step_by(8) {
        for insert in [1, 7, 8, 64, 1000] {
            let mut bytes = whole[..at].to_vec();
            bytes.resize(at + insert, 0xa5);
            bytes.extend_from_slice(&whole[at..]);
            let found = read_bytes("inserted.rsu", bytes).unwrap();
            let weight: u64 = samples(&found).iter().map(|s| s.2).sum();
            assert!(weight >= 4, "{insert} bytes at {at:#x}: weight {weight}");
            assert!(weight <= 8);
            assert!(found.damage_count() > 0, "{insert} bytes at {at:#x}");
        }
        let mut bytes = whole[..at].to_vec();
        bytes.extend_from_slice(&whole[(at + 8).min(whole.len())..]);
        let found = read_bytes("missing.rsu", bytes).unwrap();
        let weight: u64 = samples(&found).iter().map(|s| s.2).sum();
        assert!(
            (4..=8).contains(&weight),
            "8 bytes missing at {at:#x}: {weight}"
        );
    }
}

#[test]
fn a_damaged_file_header_does_not_hide_the_chunks() {
    let mut bytes = recording(&three_chunks());
    bytes[2] = b'x';
    let found = read_bytes("x.rsu", bytes).unwrap();
    assert_eq!(sorted(samples(&found)), all_samples());
    assert!(
        found.files[0].damages.listed[0]
            .what
            .contains("file header")
    );
}

#[test]
fn reused_frames_beyond_the_stack_before_are_damage() {
    let payload = |out: &mut engine::wire::codec::Encoder<'_>| {
        for byte in [2, 2, 1, 1, 0, 0, 0, 9, 0, 0] {
            out.byte(byte);
        }
    };
    let chunk = Chunk::new(1, 1, 0).record(RecordKind::Sample, payload);
    let found = read_bytes("x.rsu", recording(&[chunk])).unwrap();
    assert!(found.samples.is_empty());
    let what = &found.files[0].damages.listed[0].what;
    assert!(what.contains("reused frames"), "{what}");
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
        .map(|method| Frame {
            pc: engine::address::RuntimeAddress(0x100),
            method,
        })
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

/// A system call, sampled twice in the kernel, and a later one: with the kernel's own names of them.
fn one_call() -> Chunk {
    let frames = [0xffff_ffff_8100_0010u64, 0xffff_ffff_8100_0020];
    let kernel = |cursor, cookie| KernelHead {
        cursor,
        time_ns: cursor,
        user_ip: 0x1012,
        user_sp: 0x7000,
        cookie,
        ..KernelHead::default()
    };
    let heads = [kernel(60, COOKIE), kernel(64, COOKIE), kernel(90, 0)];
    let mut chunk = Chunk::new(42, 45, 9);
    let mut before: Option<KernelHead> = None;
    for head in heads {
        let last = before.replace(head);
        chunk = chunk.record(RecordKind::Kernel, |out| {
            let last = last.as_ref().map(|last| (last, &frames[..]));
            kernel::encode(out, last, &head, &frames);
        });
    }
    let user = |nonce| SampleHead {
        nonce,
        sp: 0x7000,
        ..head(nonce, 2)
    };
    let chunk = chunk.sample(user(64), &[0x1010, 0x20]);
    chunk.sample(user(90), &[0x1010, 0x20])
}

const COOKIE: u64 = 0xb_0000_0006;

#[test]
fn the_kernels_own_name_of_an_entry_stays_with_its_samples() {
    let found = read_bytes("x.rsu", recording(&[one_call()])).unwrap();
    let told = found
        .samples
        .iter()
        .filter(|s| s.kernel != KernelHalf::None);
    let told: Vec<_> = told.map(|s| (s.time_ns, s.kernel, s.cookie)).collect();
    let (merged, reused) = (KernelHalf::Merged, KernelHalf::Reused);
    assert_eq!(
        told,
        [(60, merged, COOKIE), (64, reused, COOKIE), (90, merged, 0)]
    );
}

/// The seeds of the fuzz target are these recordings. `RSUNWIND_WRITE_SEEDS=1 cargo test -p rsunwind-collector seeds` writes them anew.
#[test]
fn the_seeds_of_the_fuzzer_are_recordings_of_today() {
    let mut session = Chunk::new(0, 0, 0);
    session = session.record(RecordKind::Session, |out| Session::default().encode(out));
    let lines = PerfMap {
        lines: b"10 10 a\n",
    };
    let map = Chunk::new(42, 0, 0).record(RecordKind::PerfMap, |out| lines.encode(out));
    let mut deep = head(60, 1);
    deep.elided = 70;
    deep.elided_at = 1;
    let deep = Chunk::new(42, 44, 7).sample(deep, &[0x11, 0x20, 0x30]);
    let mut chunks = three_chunks();
    chunks.extend([session, map, deep]);
    let gone = ModuleGone {
        time_ns: 9,
        start: 0x1000,
    };
    let events = Chunk::new(42, 42, 8).record(RecordKind::ModuleGone, |out| gone.encode(out));
    chunks.push(process(events, 41, b"x\0"));
    chunks.push(one_call());
    let mut cut = recording(&chunks);
    cut.truncate(cut.len() - 100);
    let mut switches = three_chunks();
    for (run, key, number) in [
        (41_900, 41_950, 0),
        (41_900, 41_990, 1),
        (90_000, 90_000, 2),
    ] {
        let seen = absences(
            (42, run),
            (42, key),
            number,
            &[(run + 200, 70), (run + 900, 8)],
        );
        switches.push(thread(process(seen, 0, b"x\0"), run, b"seen"));
    }
    let seeds = [
        ("recording", recording(&chunks)),
        ("segment", segment(&three_chunks()[1..2])),
        ("cut", cut),
        ("switches", recording(&switches)),
        ("header", recording(&[])),
    ];
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/recording");
    for (name, bytes) in seeds {
        let path = directory.join(name);
        if std::env::var_os("RSUNWIND_WRITE_SEEDS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(
            std::fs::read(&path).unwrap() == bytes,
            "{name} is out of date"
        );
    }
}

/// 20,000 chunks that each claim a megabyte, of which the next chunks are part, and begin with a record that claims half of one: read
/// naively that is 30 GB. (There is no limit of time here; a test runner's own would strike.)
#[test]
fn chunks_that_reach_into_each_other_are_read_once() {
    let mut bytes = example::header().to_bytes().to_vec();
    for number in 0..20_000 {
        let info = engine::wire::chunk::ChunkInfo {
            state: 2,
            stride: 1 << 20,
            committed: (1 << 20) - 128,
            pid: number,
            tid: number + 1,
            ..Default::default()
        };
        bytes.extend_from_slice(&info.to_bytes());
        bytes.extend_from_slice(&[0xff, 0xff, 7, 0, 1, 2, 3, 4]);
        bytes.extend_from_slice(&[0; 56]);
    }
    let found = read_bytes("x.rsu", bytes).unwrap();
    assert_eq!(found.threads.len(), 20_000);
    assert!(found.samples.is_empty());
}

/// Sound records of one word between damaged ones that claim half a megabyte: all sound ones are found, or the rest is given up.
#[test]
fn the_search_behind_damage_is_bounded() {
    let mut chunk = Chunk::new(1, 1, 0);
    let mut sound = [0; 8];
    engine::wire::record::seal(&mut sound, RecordKind::Event, 0).unwrap();
    for _ in 0..50_000 {
        chunk
            .bytes
            .extend_from_slice(&[0xff, 0xff, 7, 0, 1, 2, 3, 4]);
        chunk.bytes.extend_from_slice(&sound);
    }
    chunk.info.committed = u32::try_from(chunk.bytes.len()).unwrap();
    let found = read_bytes("x.rsu", recording(&[chunk])).unwrap();
    assert!(found.damage_count() > 100);
}
