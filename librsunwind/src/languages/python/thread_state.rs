//! The thread state of the interrupted thread: what its interpreter has under its key of
//! thread-local storage. The key is found by what it must lead to, since its place in `_PyRuntime`
//! is another one in each version. From 3.15 on there is no key; the thread state is then looked
//! for among all, and remembered.
//!
//! # Safety
//! Calls libc's `pthread_getspecific`, which reads the thread's own storage.
#![allow(unsafe_code)]

use crate::errno;
use crate::modules::python::Python as Module;
use crate::weak_address;
use core::ffi::c_void;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use engine::interpreter::memory::Memory;
use engine::memory::is_readable;
use engine::mix::mix;
use engine::python::layout::{Layout, Lock, Threads};
use engine::python::threads;

/// The address of the key; 0 while it is not known.
static KEY: AtomicU64 = AtomicU64::new(0);

/// How far into `_PyRuntime` the key may be.
const FURTHEST: u64 = 8192;
/// libc has no more keys.
const KEYS: u64 = 1024;

/// A thread's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub address: u64,
    /// Whether the thread has the interpreter's lock.
    pub has_lock: bool,
}

/// The running thread state of this thread, whose `pthread_self()` is `own`; `None` if it has none.
///
/// # Signal safety
/// Loads. Some 2,000 while no thread has been seen with a thread state.
pub fn find(memory: &impl Memory, module: &Module, layout: &Layout, own: u64) -> Option<Found> {
    if let Some(threads) = &layout.threads {
        return listed(memory, module.runtime, layout, threads, own);
    }
    let known = KEY.load(Relaxed);
    let is_own = |thread: u64| memory.at(thread, layout.thread_id) == Some(own);
    let (key, of_key) = if known != 0 {
        let thread = value(memory.load(known)?)?;
        (known, Some(thread).filter(|thread| is_own(*thread))?)
    } else {
        let of_key = |key: &u64| {
            let thread = memory.load(*key).and_then(value)?;
            // Else it is no trouble that it cannot be read.
            let is_one = is_readable(thread.checked_add(layout.thread_id)?) && is_own(thread);
            is_one.then_some((*key, thread))
        };
        let is_sure = |&(key, thread): &(u64, u64)| is_key(memory, layout, key, thread);
        let places = (module.runtime..module.runtime.checked_add(FURTHEST)?).step_by(4);
        let mut found = places.filter_map(|place| of_key(&place));
        let first = found.next()?;
        match Some(first).filter(is_sure).or_else(|| found.find(is_sure)) {
            Some(sure) => {
                KEY.store(sure.0, Relaxed);
                sure
            }
            // It leads to the thread's state. The next sample looks again.
            None => first,
        }
    };
    Some(match layout.lock {
        Lock::Status(_) | Lock::Optional { .. } => Found {
            address: of_key,
            has_lock: layout.has_lock(memory, of_key),
        },
        Lock::RunningBeforeKey(distance) => {
            let place = key.checked_sub(distance)?;
            let running = running(memory, layout, place, own, of_key);
            Found {
                address: running.unwrap_or(of_key),
                has_lock: running.is_some(),
            }
        }
    })
}

/// Whether that is the place of the key, and not only something that looks like it. The first key
/// of a program has the number 0, and then it is no more than a word that is 1.
fn is_key(memory: &impl Memory, layout: &Layout, key: u64, thread: u64) -> bool {
    let Lock::RunningBeforeKey(distance) = layout.lock else {
        return true; // the place tells nothing else
    };
    let running = || memory.load(key.checked_sub(distance)?);
    memory.load(key).is_some_and(|tss| tss >> 32 != 0) || running() == Some(thread)
}

/// The thread state that has the lock, if it is this thread's: in a subinterpreter it is another
/// than the key's, up to 3.11.
fn running(
    memory: &impl Memory,
    layout: &Layout,
    place: u64,
    own: u64,
    of_key: u64,
) -> Option<u64> {
    let thread = memory.load(place).filter(|thread| *thread != 0)?;
    if thread == of_key {
        return Some(thread);
    }
    // Another thread's may go at any moment.
    let mut id = [0; 8];
    memory.copy(thread.checked_add(layout.thread_id)?, &mut id)?;
    (u64::from_le_bytes(id) == own).then_some(thread)
}

/// Thread states by thread, as they were found last.
static REMEMBERED: [[AtomicU64; 2]; 64] = [const { [const { AtomicU64::new(0) }; 2] }; 64];

/// Thread states that are looked through, at most.
const MOST_THREADS: u32 = 1000;

/// The thread state in the lists that is this thread's: the one that it runs with, if it has
/// several. Other threads' may go at any moment, so the kernel reads them.
fn listed(
    memory: &impl Memory,
    runtime: u64,
    layout: &Layout,
    lists: &Threads,
    own: u64,
) -> Option<Found> {
    // Whether the thread runs with it, if it is this thread's.
    let of_own = |address: u64| {
        let (owner, is_active) = layout.owner(memory, address)?;
        (owner == own).then_some((address, is_active))
    };
    let slot = REMEMBERED.get(mix(own) as usize % REMEMBERED.len())?;
    let [thread, address] = slot;
    let remembered = (thread.load(Relaxed) == own).then(|| address.load(Relaxed));
    let mut found = remembered.and_then(of_own);
    if !found.is_some_and(|(_, is_active)| is_active) {
        threads::find(memory, runtime, lists, MOST_THREADS, |at| {
            match of_own(at) {
                Some(better) if found.is_none() || better.1 => found = Some(better),
                _ => {}
            }
            None::<()>
        });
        thread.store(own, Relaxed);
        address.store(found?.0, Relaxed);
    }
    found.map(|(address, _)| Found {
        address,
        has_lock: layout.has_lock(memory, address),
    })
}

/// What this thread has under a key: a `Py_tss_t` is whether there is a key, and the key.
fn value(tss: u64) -> Option<u64> {
    type GetSpecific = unsafe extern "C" fn(u32) -> *mut c_void;
    let (is_made, key) = (tss as u32, tss >> 32);
    let function = weak_address!("pthread_getspecific");
    if is_made != 1 || key >= KEYS || function == 0 {
        return None;
    }
    // Others may stand in front of it.
    let _kept = errno::Kept::now();
    // SAFETY: libc's function of that signature, which gives null for what is no key.
    let value = unsafe { core::mem::transmute::<usize, GetSpecific>(function)(key as u32) } as u64;
    (value != 0 && value.is_multiple_of(8)).then_some(value)
}
