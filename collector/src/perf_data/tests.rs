//! The parts of a file that perf's own reading of it (`tests/tests/perf_data.rs`) does not show.

use super::symbol_file::{self, FIRST_OFFSET};
use crate::output::{Options, choose};
use crate::profile::Profile;
use crate::profile::tests::example;
use object::{Object, ObjectSymbol};
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
