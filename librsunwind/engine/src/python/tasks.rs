//! Tasks that wait for the one that a thread runs, from 3.14 on: `_asyncio` says where its
//! structures have what, and each task knows who awaits it.
//!
//! ```text
//! thread state ─► running task ─► who awaits it: a task, or a future that is awaited in turn ─► …
//!                  └► its coroutine      └► its coroutine ─► what that awaits ─► …
//! ```

use super::entries::Entry;
use super::layout::Layout;
use crate::interpreter::memory::Memory;

/// Where `_asyncio` says that tasks have what: places in its table, words.
mod place {
    pub const AWAITED_BY: u64 = 2;
    pub const IS_TASK: u64 = 3;
    pub const IS_SET: u64 = 4;
    pub const COROUTINE: u64 = 5;
    /// Of a thread state.
    pub const RUNNING: u64 = 11;
}

/// Bytes of that table.
pub const TABLE: u64 = 13 * 8;
/// Tasks and futures that are followed, at most.
const MOST_TASKS: u32 = 64;
/// Coroutines of a task; one that has more is as if it did not wait: without the innermost of them
/// it would seem that another one awaits the running task.
const MOST_COROUTINES: usize = 32;
const TAGS: u64 = 7;
/// Of every object.
const TYPE: u64 = 8;

/// The task that a thread runs, and then the coroutines that wait for it, innermost first.
#[derive(Clone, Copy, Debug)]
pub struct Awaiting {
    /// The outermost frame of the task itself: those of others stand behind it.
    pub outermost: u64,
    table: u64,
    task: u64,
    left: u32,
    /// Frames of the task that waits.
    frames: [u64; MOST_COROUTINES],
    count: usize,
}

impl Awaiting {
    /// Of the thread of an entry; `table` is that of `_asyncio`. `None` if it runs no task, or the
    /// version does not tell.
    pub fn of(memory: &impl Memory, layout: &Layout, entry: &Entry, table: u64) -> Option<Self> {
        let coroutines = layout.coroutines?;
        let task = field(memory, table, place::RUNNING, entry.thread)?;
        let coroutine = field(memory, table, place::COROUTINE, task)?;
        Some(Self {
            outermost: coroutine.checked_add(coroutines.frame)?,
            table,
            task,
            left: MOST_TASKS,
            frames: [0; MOST_COROUTINES],
            count: 0,
        })
    }

    /// The next frame outwards. None of tasks that several others await: nobody knows for which of
    /// them it runs.
    pub fn next(&mut self, memory: &impl Memory, layout: &Layout) -> Option<u64> {
        while self.count == 0 {
            self.left = self.left.checked_sub(1)?;
            if flag(memory, self.table, place::IS_SET, self.task)? {
                return None;
            }
            self.task = field(memory, self.table, place::AWAITED_BY, self.task)?;
            if flag(memory, self.table, place::IS_TASK, self.task)? {
                self.stand(memory, layout)?;
            }
        }
        self.count = self.count.checked_sub(1)?;
        self.frames.get(self.count).copied()
    }

    /// Notes the frames of a task that waits, from the outermost on.
    fn stand(&mut self, memory: &impl Memory, layout: &Layout) -> Option<()> {
        let coroutines = layout.coroutines?;
        let mut coroutine = field(memory, self.table, place::COROUTINE, self.task)?;
        let kind = memory.at(coroutine, layout.of_object(TYPE))?;
        loop {
            let place = self.frames.get_mut(self.count)?;
            let frame = coroutine.checked_add(coroutines.frame)?;
            *place = frame;
            self.count = self.count.checked_add(1)?;
            let state = memory.at(coroutine, coroutines.state)? as u8;
            if !coroutines.awaits.contains(&state) {
                break;
            }
            let top = memory.at(frame, coroutines.stack)?;
            coroutine = memory.load(top.checked_sub(coroutines.awaited)?)? & !TAGS;
            // Else it is a future, or something of C's.
            if coroutine == 0 || memory.at(coroutine, layout.of_object(TYPE))? != kind {
                break;
            }
        }
        Some(())
    }
}

/// The object that another one has where the table says.
fn field(memory: &impl Memory, table: u64, place: u64, object: u64) -> Option<u64> {
    let found = memory.load(at(memory, table, place, object)?)?;
    (found != 0).then_some(found)
}

/// The byte there.
fn flag(memory: &impl Memory, table: u64, place: u64, object: u64) -> Option<bool> {
    Some(memory.load(at(memory, table, place, object)?)? & 0xff != 0)
}

fn at(memory: &impl Memory, table: u64, place: u64, object: u64) -> Option<u64> {
    const FAR: u64 = 4096;
    let offset = memory.at(table, place.checked_mul(8)?)?;
    object.checked_add(Some(offset).filter(|offset| *offset < FAR)?)
}
