//! The target process as all that look at it share it.

use super::descriptor::Sockets;
use crate::interpreters::Interpreters;
use crate::remote::RemoteUnwinder;
use crate::remote_memory::RemoteMemory;
use crate::unwind::Code;
use std::collections::HashMap;

/// The process that is looked at.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) pid: u32,
    pub(super) memory: RemoteMemory,
    pub(super) unwinder: RemoteUnwinder,
    /// Its threads: the number that we know each by, and the one in its own PID namespace.
    pub(super) threads: Vec<(u32, u32)>,
    /// What its interpreters were found to run.
    pub(super) interpreters: Interpreters,
    /// What it calls threads by itself, by their numbers as we know them.
    pub(super) own_names: HashMap<u32, String>,
    /// Frames that were found.
    pub(super) frames: usize,
    /// Its sockets.
    pub(super) sockets: Sockets,
}

impl Target {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            memory: RemoteMemory(pid),
            unwinder: RemoteUnwinder::default(),
            threads: Vec::new(),
            interpreters: Interpreters::default(),
            own_names: HashMap::new(),
            frames: 0,
            sockets: Sockets::default(),
        }
    }

    pub(super) fn code(&mut self) -> &Code {
        self.unwinder.code(self.pid)
    }

    /// Our number of a thread of it that has that one in its own namespace.
    pub(super) fn thread(&self, inner: u32) -> Option<u32> {
        let found = self.threads.iter().find(|(_, own)| *own == inner);
        found.map(|(tid, _)| *tid)
    }
}
