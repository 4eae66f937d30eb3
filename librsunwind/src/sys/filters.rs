//! Seccomp filters that the program has put on after its start: what they would not let pass
//! without a word is not called ([`super::raw`] asks for every system call of ours). They are
//! copied when they are about to be put on, and run here as the kernel runs them
//! ([`engine::seccomp`]).
//!
//! A filter is one thread's, and of those that it starts; here each is taken for all threads'.
//!
//! # Safety
//! Reads the program's filter in its memory, which is asked for first.
#![allow(unsafe_code)]

use super::{Errno, PAGE, advise, map_anonymous, unmap};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use engine::memory::{can_probe, choose_probe, is_readable, load_verified};
use engine::seccomp::{self, MOST, SystemCall, allows};

/// Words for all of them, with one in front of each. The kernel takes no more of a process.
const ROOM: usize = (1 << 15) + 256;
/// In the word in front: it is being copied, or asked about.
const DRAFT: u64 = 1 << 32;
/// What it says is done.
const IN_FORCE: u64 = 1 << 33;

/// Each filter: a word with its length and state, then an instruction in each word. A word of zero
/// follows the last. Null before the first of them.
static WORDS: AtomicPtr<[AtomicU64; ROOM]> = AtomicPtr::new(core::ptr::null_mut());
/// There is one of which nothing is known.
static UNKNOWN: AtomicBool = AtomicBool::new(false);
/// The process's id, in a page that its fork children find empty.
static PROCESS_ID: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

#[inline]
fn words() -> &'static [AtomicU64] {
    // SAFETY: null, or memory that is never unmapped; zeros are words.
    unsafe { WORDS.load(Acquire).as_ref() }.map_or(&[], |words| words)
}

/// The same, with room for a filter.
///
/// # Errors
/// `ENOMEM`.
fn words_for_one() -> Result<&'static [AtomicU64], Errno> {
    if words().is_empty() {
        const SIZE: usize = size_of::<[AtomicU64; ROOM]>();
        let (none, fresh) = (core::ptr::null_mut(), map_anonymous(SIZE)?);
        let taken = WORDS.compare_exchange(none, fresh.cast(), AcqRel, Relaxed);
        if taken.is_err() {
            // SAFETY: another thread's are the ones; nobody else knows of these.
            unsafe { unmap(fresh, SIZE) };
        }
    }
    Ok(words())
}

/// There was one already when the runtime started.
static FROM_BEFORE: AtomicBool = AtomicBool::new(false);

/// The runtime has started, with mappings and files of its own, in a program whose filters it sees
/// from now on: one from before, as containers have, lets these pass.
pub fn started() {
    FROM_BEFORE.store(super::seccomp_filtered(), Relaxed);
}

/// Whether memory can be asked for without the program being killed for it: a filter from before
/// lets that pass, and each that was seen is asked first.
///
/// # Signal safety
/// Loads, perhaps a system call.
pub fn may_map() -> bool {
    FROM_BEFORE.load(Relaxed) || are_known() || !super::seccomp_filtered()
}

/// Whether there is any.
#[inline]
pub fn are_known() -> bool {
    words()
        .first()
        .is_some_and(|first| first.load(Relaxed) != 0)
        || UNKNOWN.load(Relaxed)
}

/// Whether all that are in force let a call pass.
///
/// # Signal safety
/// Loads.
pub fn may_make(call: &SystemCall) -> bool {
    !are_known() || refusal(call).is_none()
}

/// The error number that a call fails with which they do not all let pass: what the filter says, or
/// `EPERM` where it would do worse.
///
/// # Signal safety
/// Loads.
pub(super) fn refusal(call: &SystemCall) -> Option<i32> {
    first_against(call, IN_FORCE)
}

/// Whether those will that are about to be put on, too.
pub fn will_allow(call: &SystemCall) -> bool {
    first_against(call, IN_FORCE | DRAFT).is_none()
}

fn first_against(call: &SystemCall, states: u64) -> Option<i32> {
    // To return from a handler is all that is made under a filter that cannot be read.
    if UNKNOWN.load(Relaxed) && call.number != libc::SYS_rt_sigreturn {
        return Some(libc::EPERM);
    }
    let mut rest = words();
    while let Some((head, behind)) = rest.split_first() {
        let head = head.load(Acquire);
        let (filter, next) = behind.split_at_checked(length(head)).unwrap_or_default();
        if head == 0 {
            break;
        }
        if head & states != 0 && !allows(filter, call) {
            return Some(seccomp::refusal(filter, call).map_or(libc::EPERM, |error| error as i32));
        }
        rest = next;
    }
    None
}

const fn length(head: u64) -> usize {
    head as u32 as usize
}

/// A filter that is about to be put on.
#[derive(Debug)]
pub struct Draft(&'static AtomicU64);

impl Draft {
    /// Copies the filter that a `struct sock_fprog` names. `None` where the kernel will not take
    /// it, either, and where it cannot be read because of the filters before.
    ///
    /// # Safety
    /// The address is the program's, and may be anything.
    pub unsafe fn of(program: u64) -> Option<Self> {
        remember_process();
        let word = |address: u64| {
            // SAFETY: asked for.
            is_readable(address).then(|| unsafe { load_verified(address) })
        };
        let (count, start) = word(program).zip(word(program.wrapping_add(8)))?;
        let count = usize::from(count as u16);
        if !(1..=MOST).contains(&count) {
            return None;
        }
        let end = start.checked_add((count as u64) << 3)?;
        let pages = (start..end).step_by(PAGE).chain([end.wrapping_sub(8)]);
        if !pages.into_iter().all(is_readable) {
            return None;
        }
        let Ok(mut rest) = words_for_one() else {
            UNKNOWN.store(true, Release);
            return None;
        };
        while let Some((head, behind)) = rest.split_first() {
            let filter = behind.get(..count)?;
            let claimed = head.compare_exchange(0, DRAFT | count as u64, AcqRel, Acquire);
            let Err(taken) = claimed else {
                for (slot, address) in filter.iter().zip((start..end).step_by(8)) {
                    // SAFETY: each page was asked for.
                    slot.store(unsafe { load_verified(address) }, Relaxed);
                }
                return Some(Self(head));
            };
            rest = behind.get(length(taken)..)?;
        }
        None
    }
}

/// From now on what it says is done. Where there is none because of the filters before, there may
/// be one of which nothing is known.
pub fn put_in_force(draft: Option<Draft>) {
    match draft {
        Some(Draft(head)) => {
            let count = head.load(Relaxed) & !DRAFT;
            head.store(count | IN_FORCE, Release);
        }
        None if !can_probe() => UNKNOWN.store(true, Release),
        None => return,
    }
    choose_probe(may_make);
}

/// Remembers who this is: soon nobody may ask any more.
fn remember_process() {
    if PROCESS_ID.load(Relaxed).is_null()
        && let Ok(page) = map_anonymous(PAGE)
    {
        advise(page, PAGE, libc::MADV_WIPEONFORK);
        PROCESS_ID.store(page.cast(), Release);
    }
    // SAFETY: null, or a page that is never unmapped.
    if let Some(id) = unsafe { PROCESS_ID.load(Relaxed).as_ref() } {
        id.store(super::getpid(), Relaxed);
    }
}

/// The process's id where it may not be asked for; 0 in a fork child.
pub(super) fn remembered_process() -> u32 {
    let id = PROCESS_ID.load(Acquire);
    // SAFETY: null, or a page that is never unmapped.
    unsafe { id.as_ref() }.map_or(0, |id| id.load(Relaxed))
}
