//! The parts of a file that perf's own reading of it (`tests/tests/perf_data.rs`) does not show.

use super::symbol_file::{self, FIRST_OFFSET};
use crate::correlate::read_bytes;
use crate::output::{Options, choose};
use crate::profile::Profile;
use crate::profile::tests::example;
use crate::recording::example::{Chunk, head, recording};
use crate::symbolize::Places;
use engine::wire::kernel::{self, KernelHead};
use engine::wire::record::RecordKind;
use engine::wire::sample::SampleHead;
use object::{Object, ObjectSymbol};
use perf_data::{PerfFile, What};
use std::path::Path;

#[test]
fn a_symbol_file_is_an_elf_file_with_those_symbols() {
    let all = [
        (FIRST_OFFSET, 16, "[note]"),
        (FIRST_OFFSET + 0x123, 5, "JS:*f a.js:1:1"),
    ];
    let bytes = symbol_file::write(all, FIRST_OFFSET + 8192);
    let elf = object::File::parse(&*bytes).unwrap();
    let found: Vec<_> = elf
        .symbols()
        .map(|symbol| (symbol.address(), symbol.size(), symbol.name().unwrap()))
        .filter(|(_, size, _)| *size > 0)
        .collect();
    assert_eq!(found, all);
}

fn written(name: &str) -> Vec<u8> {
    written_of(&example(), name)
}

fn written_of(profile: &Profile, name: &str) -> Vec<u8> {
    let format = choose(None, Path::new(name)).unwrap();
    let mut out = Vec::new();
    let options = Options::default();
    format.write(profile, &options, &mut out).unwrap();
    out
}

/// The kinds of the records of a file, in its order.
fn kinds(file: &[u8]) -> Vec<u32> {
    let long = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (mut at, length) = (long(40), long(48));
    let end = at + length;
    let mut kinds = Vec::new();
    while at < end {
        kinds.push(u32::from_le_bytes(file[at..at + 4].try_into().unwrap()));
        at += usize::from(u16::from_le_bytes(file[at + 6..at + 8].try_into().unwrap()));
    }
    assert_eq!(at, end, "records fill their section");
    kinds
}

#[test]
fn the_name_decides_whether_user_stacks_stand_apart() {
    let count = |name: &str, kind| kinds(&written(name)).iter().filter(|k| **k == kind).count();
    assert_eq!((count("a.data", 9), count("a.data", 22)), (4, 0));
    let deferred = "a.deferred.data";
    assert_eq!((count(deferred, 9), count(deferred, 22)), (4, 4));
}

/// Of one thread: samples of an entry at 60 and 100, and of the next one at 90 and 120.
fn entries_that_overlap() -> Profile {
    let heads = [(60, 60), (70, 90)].map(|(cursor, time_ns)| KernelHead {
        cursor,
        time_ns,
        user_ip: 0x1310,
        user_sp: 0x7000,
        ..KernelHead::default()
    });
    let frames = [0xffff_ffff_8100_0010u64];
    let user = |nonce, time_ns| SampleHead {
        nonce,
        sp: 0x7000,
        ..head(time_ns, 2)
    };
    let kernel = |chunk: Chunk, index: usize| {
        let before = index.checked_sub(1).map(|last| (&heads[last], &frames[..]));
        chunk.record(RecordKind::Kernel, |out| {
            kernel::encode(out, before, &heads[index], &frames);
        })
    };
    let chunk = kernel(Chunk::new(10, 10, 0), 0).sample(user(64, 100), &[0x1310, 0x1151]);
    let chunk = kernel(chunk, 1).sample(user(80, 120), &[0x1310, 0x1251]);
    let read = read_bytes("overlapping.rsu", recording(&[chunk])).unwrap();
    Profile::new(read, &Places::default())
}

#[test]
fn a_stack_that_stands_apart_is_the_next_behind_its_samples() {
    let profile = entries_that_overlap();
    assert_eq!(profile.samples.len(), 4);
    let file = written_of(&profile, "a.deferred.data");
    let (mut waiting, mut stacks) = (Vec::new(), 0);
    for record in PerfFile::parse(&file).unwrap().records {
        match record.what {
            What::Sample { fields, .. } => waiting.extend(fields.chain.last().copied()),
            What::Deferred { cookie, stack, .. } => {
                assert!(waiting.drain(..).all(|waits_for| waits_for == cookie));
                assert_eq!(stack.len(), 2);
                stacks += 1;
            }
            _ => {}
        }
    }
    assert!(waiting.is_empty() && stacks >= 2);
}

#[test]
fn who_is_sampled_is_introduced_first() {
    let mut late = example();
    for process in &mut late.recording.processes {
        // A fork may be sampled before it has said that it is there.
        (process.time_ns, process.key) = (u64::MAX, u64::MAX);
    }
    for kinds in [
        kinds(&written("a.data")),
        kinds(&written_of(&late, "a.data")),
    ] {
        check_introductions(&kinds);
    }
}

fn check_introductions(kinds: &[u32]) {
    let first = kinds.iter().position(|kind| *kind == 9).unwrap();
    for introduction in [3, 7, 10] {
        let at = kinds.iter().position(|kind| *kind == introduction);
        assert!(at.is_some_and(|at| at < first), "{introduction}: {kinds:?}");
    }
}
