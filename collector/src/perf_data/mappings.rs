//! Where the modules of a recording lie in their files: what perf needs to find a symbol, and what a recording does not say, since a
//! module in it has addresses, not file offsets. So the program headers of the file are read, if it is still the same one here.
//!
//! Not here: names of code that no file has (`names`).

use super::records::Mapping;
use crate::recording::Module;
use object::{Object, ObjectSegment, SegmentFlags};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

const PAGE: u64 = 4096;
/// ELF's PF_X.
const EXECUTABLE: u32 = 1;

/// A part of a file with code: address in the file, length, offset.
type Segment = (u64, u64, u64);

/// Files looked at.
#[derive(Debug, Default)]
pub(super) struct Files(HashMap<(String, Vec<u8>), Vec<Segment>>);

impl Files {
    /// What of a module is code, as it is mapped.
    pub(super) fn mappings(&mut self, module: &Module) -> Vec<Mapping> {
        let path = module
            .path
            .strip_suffix(" (deleted)")
            .unwrap_or(&module.path);
        let mapping = |start: u64, length: u64, offset: u64| Mapping {
            start,
            length,
            offset,
            build_id: module.build_id.clone(),
            path: if path.is_empty() { "//anon" } else { path }.to_owned(),
        };
        let whole = module.end.0.saturating_sub(module.start.0);
        if !path.starts_with('/') {
            return vec![mapping(module.start.0, whole, 0)];
        }
        let key = (path.to_owned(), module.build_id.clone());
        let segments = self
            .0
            .entry(key)
            .or_insert_with(|| segments(Path::new(path), &module.build_id));
        if segments.is_empty() {
            let offset = module.start.0.wrapping_sub(module.bias);
            return vec![mapping(module.start.0, whole, offset)];
        }
        let all = segments.iter().map(|(address, length, offset)| {
            let within = address % PAGE;
            let start = module.bias.wrapping_add(address - within);
            let length = length.saturating_add(within).next_multiple_of(PAGE);
            mapping(start, length, offset.saturating_sub(within))
        });
        all.collect()
    }
}

/// The parts of the file with code; none if it is not there, or another build of it is.
fn segments(path: &Path, build_id: &[u8]) -> Vec<Segment> {
    let file = path.is_file().then(|| File::open(path).ok()).flatten();
    let Some(file) = file else { return Vec::new() };
    let data = object::ReadCache::new(file);
    let Ok(elf) = object::File::parse(&data) else {
        return Vec::new();
    };
    if elf.build_id().ok().flatten().unwrap_or_default() != build_id {
        return Vec::new();
    }
    let code = elf.segments().filter(|segment| {
        matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & EXECUTABLE != 0)
    });
    code.map(|segment| (segment.address(), segment.size(), segment.file_range().0))
        .filter(|(_, length, _)| *length < 1 << 40)
        .collect()
}
