//! Where the modules of a recording lie in their files: what perf needs to find a symbol, and what
//! a recording does not say, since a module in it has addresses, not file offsets. So the program
//! headers of the file are read, if it is still the same one here.
//!
//! Not here: names of code that no file has (`named_code`).

use super::encode::Mapping;
use crate::binary::Binary;
use crate::recording::Module;
use crate::segments::Segments;
use object::Object;
use std::collections::HashMap;
use std::path::Path;

const PAGE: u64 = 4096;

/// Files looked at.
#[derive(Debug, Default)]
pub(super) struct Files(HashMap<(String, Vec<u8>), Segments>);

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
        let code = segments.iter().filter(|segment| segment.executable);
        let all = code.filter_map(|segment| {
            let within = segment.address % PAGE;
            let from = module.bias.wrapping_add(segment.address - within);
            let length = segment.size.saturating_add(within).next_multiple_of(PAGE);
            // A module may be a second mapping of a part of the file.
            let start = from.max(module.start.0);
            let end = from.saturating_add(length).min(module.end.0);
            let offset = segment.offset.saturating_sub(within);
            (start < end).then(|| mapping(start, end - start, offset.saturating_add(start - from)))
        });
        let all: Vec<_> = all.collect();
        if all.is_empty() {
            let offset = module.start.0.wrapping_sub(module.bias);
            return vec![mapping(module.start.0, whole, offset)];
        }
        all
    }
}

/// The parts of the file with code; none if it is not there, or another build of it is.
fn segments(path: &Path, build_id: &[u8]) -> Segments {
    let Ok(data) = Binary::open(path) else {
        return Segments::default();
    };
    match object::File::parse(&data) {
        Ok(elf) if elf.build_id().ok().flatten().unwrap_or_default() == build_id => {
            Segments::of(&elf)
        }
        _ => Segments::default(),
    }
}
