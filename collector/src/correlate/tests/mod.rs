//! Recordings made with the wire encoders, whole and damaged, read back. Here is what all of these
//! tests begin with.

mod beside;
mod damage;
mod joined;
mod labelled;
mod languages;
mod parts;
mod seeds;
mod whole;
mod windows;

use super::*;
use crate::recording::example::{Chunk, head};
use crate::recording::*;
use engine::address::CodeAddress;
use engine::wire::WireError;
use engine::wire::file;
use engine::wire::module::Module as WireModule;
use engine::wire::process::{Origin, Process as WireProcess};
use engine::wire::record::RecordKind;
use engine::wire::sample::Trigger;
use engine::wire::thread::{Thread as WireThread, ThreadName};

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
        build_id: &start.to_le_bytes(),
        path,
        ours: path == b"/ours",
    };
    chunk.record(RecordKind::Module, |out| found.encode(out))
}

fn thread(chunk: Chunk, time_ns: u64, name: &[u8]) -> Chunk {
    let found = WireThread {
        time_ns,
        trigger: Trigger::PerfUser,
        period_ns: 1_000_000,
        periods: 1,
        refused: 0,
        signal: 23,
        unarmed_cpu_ns: 5,
        name,
    };
    chunk.record(RecordKind::Thread, |out| found.encode(out))
}

fn own_name(chunk: Chunk, time_ns: u64, name: &[u8]) -> Chunk {
    let found = ThreadName { time_ns, name };
    chunk.record(RecordKind::ThreadName, |out| found.encode(out))
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
                RawFrame::Language { position, .. } => 2_000_000_000 + u64::from(position),
                RawFrame::Lost | RawFrame::Missing => 0,
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
