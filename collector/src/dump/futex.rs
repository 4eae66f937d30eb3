//! What a thread waits for on a word of memory: a mutex that another thread has, a thread's end,
//! Python's lock. Told by what lies around the word; where nothing is known, it is just a word.

use super::call::{timeout, until};
use super::interpreted::PATIENCE;
use super::target::Target;
use crate::interpreters::Interpreters;
use crate::remote_memory::{RemoteMemory, THREAD_NUMBER};
use engine::interpreter::memory::Memory as _;

/// Commands, as `linux/futex.h` numbers them.
const WAIT: u64 = 0;
const LOCK_PI: u64 = 6;
const WAIT_BITSET: u64 = 9;
const WAIT_REQUEUE_PI: u64 = 11;
const LOCK_PI2: u64 = 13;
const REALTIME: u64 = 256;
/// Of words that hold a thread's number.
const NUMBER: u32 = 0x3fff_ffff;
/// No thread has a larger one: a word that holds one is something else, as where Rust parks.
const LARGEST: u32 = 1 << 22;
/// That others wait, of those.
const WAITERS: u32 = 1 << 31;

/// The call's arguments as text, what is waited for, and which thread has it.
pub(super) fn decode(
    target: &mut Target,
    word: u64,
    command: u64,
    value: u64,
    time: u64,
) -> (String, Option<String>, Option<u32>) {
    let operation = command & 0x7f;
    let name = match operation {
        WAIT => "FUTEX_WAIT",
        WAIT_BITSET => "FUTEX_WAIT_BITSET",
        LOCK_PI => "FUTEX_LOCK_PI",
        LOCK_PI2 => "FUTEX_LOCK_PI2",
        WAIT_REQUEUE_PI => "FUTEX_WAIT_REQUEUE_PI",
        _ => return (format!("{word:#x}, {operation}, …"), None, None),
    };
    let clock = u64::from(command & REALTIME == 0); // CLOCK_REALTIME is 0, CLOCK_MONOTONIC 1
    let left = match operation {
        WAIT => timeout(target.memory, time),
        LOCK_PI => until(target.memory, 0, time),
        _ => until(target.memory, clock, time),
    };
    let value = value as u32;
    let (waits_for, owner) = what(target, operation, word, value);
    (
        format!("{word:#x}, {name}, {value}, {left}"),
        waits_for,
        owner,
    )
}

fn what(
    target: &mut Target,
    operation: u64,
    word: u64,
    value: u32,
) -> (Option<String>, Option<u32>) {
    if target.code().is_gil(word) {
        let pid = target.pid;
        let owner = Interpreters::lock_owner(target.code(), pid, PATIENCE);
        let owner = owner.and_then(|inner| target.thread(inner));
        let by = owner.map_or_else(String::new, |tid| format!(", which thread {tid} has"));
        return (Some(format!("Python's GIL{by}")), owner);
    }
    let now = target.memory.half(word);
    let holds_owner = matches!(operation, LOCK_PI | LOCK_PI2) || value & WAITERS != 0;
    let owner = match holds_owner {
        true => now,
        false => mutex_owner(target.memory, word, value),
    };
    let owner = owner
        .map(|owner| owner & NUMBER)
        .filter(|owner| (1..=LARGEST).contains(owner));
    if let Some(inner) = owner {
        return match target.thread(inner) {
            Some(tid) => (Some(format!("a mutex that thread {tid} has")), Some(tid)),
            None if holds_owner || is_mutex(target.memory, word) => (
                Some(format!(
                    "a mutex whose owner, thread {inner}, is not there any more"
                )),
                None,
            ),
            None => (None, None),
        };
    }
    match target.thread(value) {
        Some(tid) if now == Some(value) && is_threads_number(target.memory, word) => {
            (Some(format!("the end of thread {tid}")), Some(tid))
        }
        _ => (None, None),
    }
}

/// glibc's `pthread_mutex_t`: the lock (2 when somebody waits), how often it was taken, who has it,
/// how many use it, its kind.
fn mutex_owner(memory: RemoteMemory, word: u64, value: u32) -> Option<u32> {
    const CONTENDED: u32 = 2;
    let is_one =
        value == CONTENDED && memory.half(word) == Some(CONTENDED) && is_mutex(memory, word);
    is_one.then(|| memory.half(word.checked_add(8)?)).flatten()
}

fn is_mutex(memory: RemoteMemory, word: u64) -> bool {
    /// Kinds are bits below this.
    const KINDS: u32 = 0x400;
    let field = |offset| memory.half(word.checked_add(offset)?);
    matches!((field(12), field(16)), (Some(users), Some(kind)) if (1..=NUMBER).contains(&users) && kind < KINDS)
}

/// Whether the word is where glibc keeps a thread's number, which the kernel clears at its end: the
/// structure that it lies in begins with its own address.
fn is_threads_number(memory: RemoteMemory, word: u64) -> bool {
    let own = word.checked_sub(THREAD_NUMBER);
    own.is_some_and(|own| memory.load(own) == Some(own))
}
