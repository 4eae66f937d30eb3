//! The entries of a thread, innermost first: where each is recorded on the C stack, and which
//! Python frames it runs.

use super::layout::{Entries, Layout};
use crate::interpreter::memory::Memory;

/// An entry of the interpreter's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where its record is: on the C stack.
    pub address: u64,
    /// Its innermost frame.
    pub frame: u64,
    /// How many frames it has.
    pub count: u32,
    /// The thread state.
    thread: u64,
}

impl Entry {
    /// As many words as it takes to keep one.
    pub const WORDS: usize = 4;

    /// To be kept.
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        [self.address, self.frame, self.count as u64, self.thread]
    }

    /// As it was kept.
    pub const fn from_words([address, frame, count, thread]: &[u64; Self::WORDS]) -> Self {
        Self {
            address: *address,
            frame: *frame,
            count: *count as u32,
            thread: *thread,
        }
    }
}

/// A frame of an entry's may be followed by so many others.
const MOST: u32 = 100_000;

impl Layout {
    /// The innermost entry of a thread; `None` where it runs no Python.
    pub fn innermost(&self, memory: &impl Memory, thread: u64) -> Option<Entry> {
        let innermost = memory.at(thread, self.innermost)?;
        match self.entries {
            Entries::One {
                innermost: record, ..
            } => {
                let record = memory.at(thread, record)?;
                self.recorded_at(memory, thread, record, innermost)
            }
            Entries::Marked { .. } => self.recorded_at(memory, thread, innermost, 0),
            Entries::OnStack { by_way_of, .. } => {
                let frame = match by_way_of {
                    Some(offset) => memory.at(innermost, offset)?,
                    None => innermost,
                };
                self.run_from(memory, thread, frame)
            }
        }
    }

    /// The next outer entry.
    pub fn outer(&self, memory: &impl Memory, entry: &Entry) -> Option<Entry> {
        match self.entries {
            Entries::One { previous, .. } => {
                let record = memory.at(entry.address, previous)?;
                let frame = self.caller(memory, entry.frame)?;
                self.recorded_at(memory, entry.thread, record, frame)
            }
            Entries::Marked { previous, .. } => {
                let record = memory.at(entry.address, previous)?;
                self.recorded_at(memory, entry.thread, record, 0)
            }
            Entries::OnStack { .. } => {
                let frame = self.caller(memory, entry.address)?;
                self.run_from(memory, entry.thread, frame)
            }
        }
    }

    /// The frame that called another one.
    pub fn caller(&self, memory: &impl Memory, frame: u64) -> Option<u64> {
        memory.at(frame, self.previous)
    }

    /// The entry that is recorded there; `None` for the outermost record, which is nobody's. 3.10
    /// has no frame there, but in `its`.
    fn recorded_at(
        &self,
        memory: &impl Memory,
        thread: u64,
        record: u64,
        its: u64,
    ) -> Option<Entry> {
        let (root, frame, count) = match self.entries {
            Entries::One { root, .. } => (root, its, u32::from(its != 0)),
            Entries::Marked {
                root,
                frame,
                is_entry,
                ..
            } => {
                if record == thread.wrapping_add(root) || record == 0 {
                    return None;
                }
                let frame = memory.at(record, frame)?;
                (root, frame, self.count_to(memory, frame, is_entry)?)
            }
            Entries::OnStack { .. } => return None,
        };
        let is_root = record == thread.wrapping_add(root) || record == 0;
        (!is_root).then_some(Entry {
            address: record,
            frame,
            count,
            thread,
        })
    }

    /// How many frames there are to the one with the mark.
    fn count_to(&self, memory: &impl Memory, mut frame: u64, is_entry: u64) -> Option<u32> {
        for count in 1..MOST {
            if frame == 0 {
                return Some(count.wrapping_sub(1));
            }
            if memory.at(frame, is_entry)? & 0xff != 0 {
                return Some(count);
            }
            frame = self.caller(memory, frame)?;
        }
        None
    }

    /// The entry whose innermost frame that is.
    fn run_from(&self, memory: &impl Memory, thread: u64, first: u64) -> Option<Entry> {
        /// What owns a frame on the C stack; from 3.14 on the interpreter itself.
        const C_STACK: u64 = 3;
        let Entries::OnStack { owner, base, .. } = self.entries else {
            return None;
        };
        let base = match base {
            Some(offset) => memory.at(thread, offset)?,
            None => 0,
        };
        let mut frame = first;
        for count in 0..MOST {
            if frame == 0 || frame == base {
                return None;
            }
            if memory.at(frame, owner)? & 0xff >= C_STACK {
                return Some(Entry {
                    address: frame,
                    frame: first,
                    count,
                    thread,
                });
            }
            frame = self.caller(memory, frame)?;
        }
        None
    }
}
