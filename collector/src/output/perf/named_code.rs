//! Addresses and names for frames that no file has the symbols of: a JIT's code keeps its
//! addresses; notes, and frames of another language, get addresses that nothing else is at. The
//! names go into a symbol file beside the profile, which is given as what is mapped there:
//! `/tmp/perf-PID.map`, which perf would look into otherwise, may be gone by then, or another
//! process's.
//!
//! Not here: the form of that file (`symbol_file`).

use super::encode::Mapping;
use super::symbol_file::{self, FIRST_OFFSET};
use crate::profile::{Frame, Function, Mode};
use crate::recording::ProcessId;
use crate::symbolize::UNKNOWN;
use engine::address::{CodeAddress, RuntimeAddress};
use engine::wire::sample::Method;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Where made-up addresses begin: above what is mapped low, below where the kernel puts programs
/// and libraries.
const MADE_UP: u64 = 0x1000_0000_0000;
/// From one made-up address to the next.
const STEP: u64 = 16;
const PAGE: u64 = 4096;

/// What is named in one process: by address, up to where each name holds.
#[derive(Debug, Default)]
struct Names {
    code: BTreeMap<u64, (u64, Arc<str>)>,
    made_up: HashMap<Arc<str>, u64>,
}

/// The named code of all processes.
#[derive(Debug, Default)]
pub(super) struct NamedCode(BTreeMap<ProcessId, Names>);

/// Some pages of named code, and where in the symbol file they are.
struct Window {
    process: ProcessId,
    start: u64,
    end: u64,
    offset: u64,
}

impl NamedCode {
    /// The address that stands for a frame in a call chain.
    pub(super) fn address(
        &mut self,
        process: ProcessId,
        frame: &Frame,
        function: &Function,
    ) -> u64 {
        let language = frame.method == Some(Method::Language);
        match frame.address.map(raw) {
            Some(address) if !language => {
                let is_code = matches!(function.mode, Mode::User | Mode::Language(_));
                let nowhere = function.image.is_none() && is_code;
                if nowhere && &*function.name != UNKNOWN {
                    let names = self.0.entry(process).or_default();
                    let end = address.saturating_add(1);
                    names.code.insert(address, (end, function.name.clone()));
                }
                address
            }
            _ => self.make_up(process, &function.name),
        }
    }

    fn make_up(&mut self, process: ProcessId, name: &Arc<str>) -> u64 {
        let names = self.0.entry(process).or_default();
        let next = MADE_UP + names.made_up.len() as u64 * STEP;
        let start = *names.made_up.entry(name.clone()).or_insert(next);
        if start == next {
            names.code.insert(start, (start + STEP, name.clone()));
        }
        // Not the first byte: a reader may look one below a return address.
        start + 1
    }

    /// What is to be mapped into a process so that perf looks for the names in the file at `path`.
    pub(super) fn mappings(&self, process: ProcessId, path: &str) -> Vec<Mapping> {
        let windows = self.windows();
        let of_process = windows.iter().filter(|window| window.process == process);
        let mapping = |window: &Window| Mapping {
            start: window.start,
            length: window.end - window.start,
            offset: window.offset,
            build_id: Vec::new(),
            path: path.to_owned(),
        };
        of_process.map(mapping).collect()
    }

    /// The symbol file; none if there is nothing to name.
    pub(super) fn file(&self) -> Option<Vec<u8>> {
        let windows = self.windows();
        let last = windows.last()?;
        let end = last.offset + (last.end - last.start);
        let symbols = windows.iter().flat_map(|window| {
            let names = &self.0[&window.process];
            let runs = runs(names.code.range(window.start..window.end));
            let moved = move |(start, end, name): (u64, u64, _)| {
                (start - window.start + window.offset, end - start, name)
            };
            runs.into_iter().map(moved)
        });
        Some(symbol_file::write(symbols, end))
    }

    /// All pages with named code, one behind the other in the file.
    fn windows(&self) -> Vec<Window> {
        let mut all: Vec<Window> = Vec::new();
        let mut offset = FIRST_OFFSET;
        for (process, names) in &self.0 {
            for address in names.code.keys() {
                let start = address / PAGE * PAGE;
                match all.last_mut() {
                    Some(last) if last.process == *process && last.end > start => continue,
                    Some(last) if last.process == *process && last.end == start => {
                        last.end += PAGE;
                    }
                    _ => all.push(Window {
                        process: *process,
                        start,
                        end: start.saturating_add(PAGE),
                        offset,
                    }),
                }
                offset += PAGE;
            }
        }
        all
    }
}

/// Names that follow each other are one.
fn runs<'a>(
    code: impl Iterator<Item = (&'a u64, &'a (u64, Arc<str>))>,
) -> Vec<(u64, u64, &'a str)> {
    let mut runs: Vec<(u64, u64, &str)> = Vec::new();
    for (start, (end, name)) in code {
        match runs.last_mut() {
            Some(last) if *last.2 == **name => last.1 = *end,
            _ => runs.push((*start, *end, name)),
        }
    }
    runs
}

fn raw(address: CodeAddress) -> u64 {
    let (CodeAddress::Instruction(RuntimeAddress(at)) | CodeAddress::Return(RuntimeAddress(at))) =
        address;
    at
}
