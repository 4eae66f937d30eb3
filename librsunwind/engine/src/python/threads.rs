//! All thread states of an interpreter, in its lists. Those of other threads may go at any moment,
//! so they are copied by who can tell.

use super::layout::Threads;
use crate::interpreter::memory::Memory;

/// Interpreters that are looked through, at most.
const MOST_INTERPRETERS: u32 = 64;

/// Shows the thread states of all interpreters, at most so many, until one is what was looked for.
pub fn find<T>(
    memory: &impl Memory,
    runtime: u64,
    threads: &Threads,
    most: u32,
    mut show: impl FnMut(u64) -> Option<T>,
) -> Option<T> {
    let mut left = most;
    let mut interpreter = word(memory, runtime, threads.interpreters)?;
    for _ in 0..MOST_INTERPRETERS {
        let mut at = word(memory, interpreter, threads.first).unwrap_or(0);
        while at != 0 && left > 0 {
            left = left.wrapping_sub(1);
            if let Some(found) = show(at) {
                return Some(found);
            }
            at = word(memory, at, threads.next).unwrap_or(0);
        }
        interpreter =
            word(memory, interpreter, threads.next_interpreter).filter(|next| *next != 0)?;
    }
    None
}

/// A word that another thread may unmap.
pub fn word(memory: &impl Memory, at: u64, offset: u64) -> Option<u64> {
    let mut word = [0; 8];
    memory.copy(at.checked_add(offset)?, &mut word)?;
    Some(u64::from_le_bytes(word))
}
