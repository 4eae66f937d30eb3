//! CPython from outside: the entries of a thread, wherever its thread states are.

use super::NativeStack;
use super::memory::{Pages, WithStack};
use crate::remote_memory::THREAD_NUMBER;
use crate::unwind::Code;
use engine::interpreter::memory::Memory;
use engine::python::entries::Entry;
use engine::python::layout::{self, Entries, Layout};
use engine::python::names;
use engine::python::threads;
use std::collections::HashMap;
use std::ops::Range;

/// Behind a thread state's `thread_id`: the thread's number, from 3.11 on. A child of fork has its
/// parent's there, so it is asked only where the C library is not glibc.
const NATIVE_ID: u64 = 8;
/// Thread states of a process, and of one thread its entries and the frames of them all, at most;
/// of more, the innermost.
const MOST_THREADS: u32 = 100_000;
const MOST_ENTRIES: usize = 10_000;
pub(super) const MOST_FRAMES: u32 = 16_000;

/// A process's CPython.
pub(super) struct Python {
    pub(super) layout: Layout,
    pub(super) code_type: u64,
    runtime: u64,
    minor: u64,
    /// The loop.
    code: Range<u64>,
    /// Where tasks have what.
    pub(super) tasks: Option<u64>,
    threads: layout::Threads,
}

/// What a thread has of it.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// By where on its stack they are.
    pub(super) entries: Vec<Entry>,
    /// Whether some were left out.
    pub(super) lacks: bool,
    /// Whether it has its interpreter's lock.
    pub(super) has_lock: bool,
}

/// Who has which thread states: the thread's `pthread_self()`, and where they are.
pub(super) type Threads = HashMap<u32, (u64, Vec<u64>)>;

impl Python {
    /// That of a process.
    pub(super) fn of(memory: &Pages, process: &Code) -> Option<Self> {
        let (bias, exported) = process.python()?;
        let runtime = exported.runtime.start.wrapping_add(bias);
        let version = match exported.version {
            Some(address) => memory.load(address.wrapping_add(bias))?,
            None => 3 << 24 | exported.minor << 16,
        };
        let minor = (version >> 24 == 3).then_some(version >> 16 & 0xff)?;
        let code = exported.code.start.wrapping_add(bias)..exported.code.end.wrapping_add(bias);
        Some(Self {
            layout: layout::of(memory, minor, runtime)?,
            threads: layout::threads(memory, minor, runtime)?,
            code_type: exported.code_type.wrapping_add(bias),
            runtime,
            minor,
            code,
            tasks: process.asyncio(),
        })
    }

    /// What there is of a thread of that number (in its own PID namespace), whose native frames are
    /// known.
    pub(super) fn share(
        &self,
        memory: &Pages,
        tid: u32,
        native: &NativeStack<'_>,
        threads: &mut Threads,
    ) -> Share {
        let stack = &WithStack {
            pages: memory,
            stack: native.copy,
        };
        let known = threads.get(&tid);
        let known = known.filter(|(own, states)| self.is_of(memory, tid, *own, states));
        let (_, states) = match known {
            Some(known) => known,
            None => {
                self.find(memory, threads);
                match threads.get(&tid) {
                    Some(found) => found,
                    None => return Share::default(),
                }
            }
        };
        let mut entries: Vec<Entry> = Vec::new();
        for state in states {
            let first = self.layout.innermost(memory, *state);
            let all = std::iter::successors(first, |entry| self.layout.outer(memory, entry));
            entries.extend(all.take(MOST_ENTRIES.saturating_sub(entries.len())));
        }
        let lacks = entries.len() >= MOST_ENTRIES;
        match self.layout.entries {
            Entries::Unplaced => self.place(stack, native, &mut entries),
            _ => {
                entries.sort_by_key(|entry| entry.address);
                entries.dedup_by_key(|entry| entry.address);
            }
        }
        let has_lock = states.iter().any(|state| self.has_lock(memory, *state));
        Share {
            entries,
            lacks,
            has_lock,
        }
    }

    /// Gives entries their places among native frames, of those that are nowhere else (3.9).
    fn place(&self, memory: &impl Memory, native: &NativeStack<'_>, entries: &mut Vec<Entry>) {
        let (mut at, mut pointer) = (0, 0);
        for (frame, spot) in native.frames.iter().zip(native.spots) {
            let Some(entry) = entries.get(at) else { return };
            let cfa = spot.cfa.filter(|_| self.code.contains(&frame.pc.0));
            let placed = cfa.and_then(|cfa| {
                let native = spot.sp..cfa;
                self.layout.placed(memory, entry, native, &mut pointer)
            });
            if let Some(placed) = placed {
                let end = entries.len().min(at + placed.count as usize);
                entries.splice(at..end, [placed]);
                at += 1;
            }
        }
    }

    /// What `threading` calls the thread of which that is the outermost entry.
    pub(super) fn thread_name(&self, memory: &Pages, entry: &Entry) -> Option<Vec<u8>> {
        let caller = |frame: &u64| self.layout.caller(memory, *frame);
        let mut frames = std::iter::successors(Some(entry.frame), caller);
        let outermost = frames.nth(entry.count.checked_sub(1)? as usize)?;
        let mut room = [0; names::LONGEST];
        let name = self.layout.thread_name(memory, outermost, &mut room)?;
        Some(name.to_vec())
    }

    /// The thread that has the lock, by its number in its own PID namespace.
    pub(super) fn lock_owner(&self, memory: &Pages) -> Option<u32> {
        threads::find(memory, self.runtime, &self.threads, MOST_THREADS, |state| {
            let has_lock = self.has_lock(memory, state);
            has_lock.then(|| self.number(memory, state))?
        })
    }

    fn has_lock(&self, memory: &Pages, state: u64) -> bool {
        match layout::running(self.minor) {
            Some(offset) => memory.at(self.runtime, offset) == Some(state),
            None => self.layout.has_lock(memory, state),
        }
    }

    fn id_of(&self, memory: &Pages, state: u64) -> Option<u64> {
        threads::word(memory, state, self.layout.thread_id)
    }

    fn is_of(&self, memory: &Pages, tid: u32, own: u64, states: &[u64]) -> bool {
        states.iter().all(|state| {
            self.id_of(memory, *state) == Some(own) && self.number(memory, *state) == Some(tid)
        })
    }

    fn find(&self, memory: &Pages, known: &mut Threads) {
        known.clear();
        threads::find(memory, self.runtime, &self.threads, MOST_THREADS, |state| {
            let own = self.id_of(memory, state)?;
            if let Some(tid) = self.number(memory, state) {
                let (of, states) = known.entry(tid).or_insert_with(|| (own, Vec::new()));
                if *of == own {
                    states.push(state);
                }
            }
            None::<()>
        });
    }

    /// The number of a thread state's thread.
    fn number(&self, memory: &Pages, state: u64) -> Option<u32> {
        let own = self.id_of(memory, state)?;
        let number = match threads::word(memory, own, 0) == Some(own) {
            true => threads::word(memory, own, THREAD_NUMBER)?,
            false if self.minor > 10 => {
                threads::word(memory, state, self.layout.thread_id.checked_add(NATIVE_ID)?)?
            }
            false => return None,
        };
        Some(number as u32)
    }
}
