//! The module of an address in a whole recording, where a process that forked may have its
//! parent's.

use super::ids::{ModuleId, ProcessId};
use super::model::{Process, RawFrame, Recording};
use crate::preload_library;
use engine::address::RuntimeAddress;
use engine::wire::sample::{Frame, Method};

/// How far up to look for the modules of a process that forked and recorded none of its own.
const MOST_FORKS: usize = 16;

impl Recording {
    /// The module in which an address of a process lay at that time.
    pub(crate) fn module_at(
        &self,
        process: ProcessId,
        address: RuntimeAddress,
        time_ns: u64,
    ) -> Option<ModuleId> {
        let modules = &self.modules;
        let mut owner = &self.processes[process.index()];
        let mut found = owner.map.find(address, time_ns, modules);
        for _ in 0..MOST_FORKS {
            let parent = owner.parent.filter(|_| inherits(owner));
            let Some(parent) = parent.filter(|_| found.is_none()) else {
                break;
            };
            let forked_ns = owner.key;
            owner = &self.processes[parent.index()];
            found = owner.map.find(address, forked_ns.min(time_ns), modules);
        }
        found
    }

    /// What a frame was in a process at that time.
    pub(crate) fn raw_frame(&self, process: ProcessId, frame: Frame, time_ns: u64) -> RawFrame {
        match (frame.method, frame.pc.0) {
            (Method::Language, 0) => RawFrame::Missing,
            (Method::Language, number) => RawFrame::Language {
                code: (self.processes[process.index()].codes)
                    .get(&number)
                    .copied(),
                position: frame.position,
            },
            _ => {
                let address = frame.code_address().lookup();
                RawFrame::code(process, frame, self.module_at(process, address, time_ns))
            }
        }
    }

    /// Whether each address of a process means the same module at all times.
    pub(crate) fn has_steady_map(&self, process: ProcessId) -> bool {
        let mut owner = &self.processes[process.index()];
        for _ in 0..MOST_FORKS {
            let Some(parent) = owner.parent.filter(|_| inherits(owner)) else {
                break;
            };
            owner = &self.processes[parent.index()];
        }
        owner.map.is_steady()
    }

    /// Whether code of a process at that address was our own library's, and what was done there our
    /// own work: the rest of a call of the program's is the program's.
    pub(crate) fn is_ours(&self, process: ProcessId, address: u64, time_ns: u64) -> bool {
        let module = self.module_at(process, RuntimeAddress(address), time_ns);
        module
            .map(|module| &self.modules[module.index()])
            .filter(|module| module.ours)
            .is_some_and(|module| {
                let address = address.wrapping_sub(module.bias);
                !preload_library::is_in_rest_of_call(&module.build_id, address)
            })
    }
}

fn inherits(process: &Process) -> bool {
    process.map.is_empty() && process.origin == engine::wire::process::Origin::Fork
}
