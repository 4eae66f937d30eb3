//! The entries of a thread, innermost first: where each is recorded on the C stack, and which
//! Python frames it runs.

use super::code::Frame;
use super::layout::{Entries, Layout};
use crate::interpreter::memory::Memory;
use core::ops::Range;

/// An entry of the interpreter's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where its record is: on the C stack; [`Entry::UNPLACED`] if that is not known.
    pub address: u64,
    /// Its innermost frame.
    pub frame: u64,
    /// How many frames it has.
    pub count: u32,
    /// What the innermost says of itself, where that is known already.
    pub innermost: Option<Frame>,
    /// The thread state.
    pub(super) thread: u64,
}

impl Entry {
    /// Beyond all stacks.
    pub const UNPLACED: u64 = 1 << 63;

    /// As many words as it takes to keep one.
    pub const WORDS: usize = 8;

    /// To be kept.
    #[inline]
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        let [a, b, c, d] = match self.innermost {
            Some(frame) => frame.words(),
            None => [0; 4],
        };
        let (frame, count, thread) = (self.frame, self.count as u64, self.thread);
        [self.address, frame, count, thread, a, b, c, d]
    }

    /// As it was kept.
    #[inline]
    pub const fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let [address, frame, count, thread, a, b, c, d] = *words;
        let innermost = Frame::of([a, b, c, d]);
        let is_known = innermost.code != 0;
        Self {
            address,
            frame,
            count: count as u32,
            innermost: if is_known { Some(innermost) } else { None },
            thread,
        }
    }
}

/// Of a frame to 3.9: what is no number of words that it has room for.
const MOST_ROOM: u64 = 1 << 16;
/// Of a native frame of its loop: behind its own words the registers of its caller, which may have
/// pointers into the caller's frame, and where it returns to.
const SAVED: u64 = 7 * 8;
/// Likewise, bytes.
const LONGEST: u64 = 2048;

const fn unplaced(thread: u64, frame: u64) -> Option<Entry> {
    let entry = Entry {
        address: Entry::UNPLACED,
        frame,
        count: 1,
        innermost: None,
        thread,
    };
    if frame == 0 { None } else { Some(entry) }
}

/// Whether a frame of 3.10 is run, by how many values it has on its stack, its state and its
/// generator.
const fn is_run([depth, state, generator]: [u64; 3]) -> bool {
    (depth as i32) < 0 || state & 0xff != 0 || generator == 0
}

/// A frame of an entry's may be followed by so many others.
const MOST: u32 = 100_000;

impl Layout {
    /// The innermost entry of a thread; `None` where it runs no Python.
    pub fn innermost(&self, memory: &impl Memory, thread: u64) -> Option<Entry> {
        let innermost = memory.at(thread, self.innermost)?;
        match self.entries {
            Entries::Unplaced => unplaced(thread, innermost),
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
        let after = match self.entries {
            Entries::Unplaced | Entries::One { .. } => self.after(memory, entry)?,
            Entries::Marked { .. } | Entries::OnStack { .. } => 0,
        };
        self.outer_of(memory, entry, after)
    }

    /// The same where it is known which frame called the outermost one of the entry.
    pub fn outer_of(&self, memory: &impl Memory, entry: &Entry, after: u64) -> Option<Entry> {
        match self.entries {
            Entries::Unplaced => unplaced(entry.thread, after),
            Entries::One { previous, .. } => {
                let record = memory.at(entry.address, previous)?;
                self.recorded_at(memory, entry.thread, record, after)
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

    /// The part of an unplaced entry that a native frame of the loop runs, which lies at these
    /// addresses: the frame that it has pointers into, and those that are inner to it, if their
    /// own native frames were missed. `None` if it runs none yet, or no more.
    /// `place` is where such a pointer was found in the native frame before, from its beginning, as
    /// nearly all are those of one function.
    #[inline]
    pub fn placed(
        &self,
        memory: &impl Memory,
        entry: &Entry,
        native: Range<u64>,
        place: &mut u64,
    ) -> Option<Entry> {
        if self.entries != Entries::Unplaced || entry.frame == 0 {
            return None;
        }
        let own = native.start..native.end.checked_sub(SAVED)?;
        let size = own.end.checked_sub(own.start)?.min(LONGEST);
        let (said, [room, ..]) = self.first(memory, entry.frame)?;
        let points = |at| {
            let word = memory.at(own.start, at);
            word.is_some_and(|word| word.wrapping_sub(entry.frame) <= self.reach(room))
        };
        if *place < size && points(*place) {
            return Some(Entry {
                address: own.start,
                count: 1,
                innermost: Some(said),
                ..*entry
            });
        }
        self.look_for_place(memory, entry, (own.start, size), place)
    }

    /// The same where the pointer is not where it was before: looks at all words, for that frame
    /// and those that called it.
    #[cold]
    #[inline(never)]
    fn look_for_place(
        &self,
        memory: &impl Memory,
        entry: &Entry,
        (start, size): (u64, u64),
        place: &mut u64,
    ) -> Option<Entry> {
        /// Native frames that are missed at a time: the loop's rare parts may be elsewhere, and
        /// nobody knows that they are its own.
        const MISSED: u32 = 8;
        let (mut frame, mut innermost) = (entry.frame, None);
        for count in 1..=MISSED {
            if frame == 0 {
                return None;
            }
            let (said, [room, ..]) = self.first(memory, frame)?;
            innermost = innermost.or(Some(said));
            let words = (0..size).step_by(8);
            let known = Some(*place).filter(|at| *at < size);
            let points = |at: &u64| {
                let word = memory.at(start, *at);
                word.is_some_and(|word| word.wrapping_sub(frame) <= self.reach(room))
            };
            if let Some(at) = known.into_iter().chain(words).find(points) {
                *place = at;
                return Some(Entry {
                    address: start,
                    count,
                    innermost,
                    ..*entry
                });
            }
            frame = said.caller;
        }
        None
    }

    /// How far a frame to 3.9 with room for so many words reaches, at most.
    const fn reach(&self, room: u64) -> u64 {
        let room = if room < MOST_ROOM { room } else { MOST_ROOM };
        self.variables.wrapping_add(room.wrapping_mul(8))
    }

    /// What a frame to 3.10 says of itself, and what tells its entry.
    #[inline]
    fn first(&self, memory: &impl Memory, frame: u64) -> Option<(Frame, [u64; 3])> {
        let words = memory.fields(frame, &self.at_once.first)?;
        let [a, b, c, d, rest @ ..] = words;
        Some((Frame::of([a, b, c, d]), rest))
    }

    /// The frame that called another one.
    pub fn caller(&self, memory: &impl Memory, frame: u64) -> Option<u64> {
        memory.at(frame, self.previous)
    }

    /// The frame that called the outermost one of an entry.
    fn after(&self, memory: &impl Memory, entry: &Entry) -> Option<u64> {
        let mut frame = entry.frame;
        for _ in 0..entry.count {
            frame = self.caller(memory, frame)?;
        }
        Some(frame)
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
        let (root, frame, count, innermost) = match self.entries {
            Entries::One { root, .. } => {
                let (count, innermost) = self.count_to_run(memory, its);
                (root, its, count, innermost)
            }
            Entries::Marked {
                root,
                previous,
                frame,
                ..
            } => {
                if record == thread.wrapping_add(root) || record == 0 {
                    return None;
                }
                let next = memory.at(record, previous);
                let outer = next.and_then(|next| memory.at(next, frame)).unwrap_or(0);
                let frame = memory.at(record, frame)?;
                (root, frame, self.count_to(memory, frame, outer)?, None)
            }
            Entries::Unplaced | Entries::OnStack { .. } => return None,
        };
        let is_root = record == thread.wrapping_add(root) || record == 0;
        (!is_root).then_some(Entry {
            address: record,
            frame,
            count,
            innermost,
            thread,
        })
    }

    /// How many frames there are to one that is run. Where something is thrown into a generator
    /// that awaits another one, it is made the caller of that without being run. Other frames may
    /// look alike, while a tracing function runs. And what the first of them says of itself.
    #[inline]
    fn count_to_run(&self, memory: &impl Memory, first: u64) -> (u32, Option<Frame>) {
        if first == 0 {
            return (0, None);
        }
        let Some((said, telling)) = self.first(memory, first) else {
            return (1, None);
        };
        let count = match is_run(telling) {
            true => 1,
            false => self.count_from(memory, said.caller),
        };
        (count, Some(said))
    }

    /// The same from the second frame on.
    #[cold]
    #[inline(never)]
    fn count_from(&self, memory: &impl Memory, second: u64) -> u32 {
        let mut frame = second;
        for count in 2..MOST {
            if frame == 0 {
                return count.wrapping_sub(1);
            }
            match self.first(memory, frame) {
                Some((said, telling)) if !is_run(telling) => frame = said.caller,
                _ => return count,
            }
        }
        1
    }

    /// How many frames there are to the one with the mark that `outer`, the innermost frame of the
    /// next outer entry, called. Generators are made callers without being run here, too: they have
    /// their mark from when they were.
    fn count_to(&self, memory: &impl Memory, mut frame: u64, outer: u64) -> Option<u32> {
        let mut marked = None;
        for count in 1..MOST {
            if frame == 0 {
                return marked.or(Some(count.wrapping_sub(1)));
            }
            let Some([mark, caller]) = memory.fields(frame, &self.at_once.link) else {
                break;
            };
            if mark & 0xff != 0 {
                if caller == outer {
                    return Some(count);
                }
                // If none is called by it, the first is as good as it gets.
                marked = marked.or(Some(count));
            }
            frame = caller;
        }
        marked
    }

    /// The entry whose innermost frame that is.
    fn run_from(&self, memory: &impl Memory, thread: u64, first: u64) -> Option<Entry> {
        /// What owns a frame on the C stack; from 3.14 on the interpreter itself.
        const C_STACK: u64 = 3;
        let Entries::OnStack { base, .. } = self.entries else {
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
            let [owner, caller] = memory.fields(frame, &self.at_once.link)?;
            if owner & 0xff >= C_STACK {
                return Some(Entry {
                    address: frame,
                    frame: first,
                    count,
                    innermost: None,
                    thread,
                });
            }
            frame = caller;
        }
        None
    }
}
