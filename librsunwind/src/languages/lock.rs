//! Changes of what is registered come one at a time, with no handler in between.

use crate::gate::give_way;
use crate::sys::{self, HeldBack};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The pid of the process in which somebody changes something, else 0: a fork child may find it as
/// a thread of its parent had it.
static LOCK: AtomicU32 = AtomicU32::new(0);

/// Held while it lives.
pub(super) struct Locked(#[expect(dead_code, reason = "held while it lives")] HeldBack);

impl Locked {
    pub fn now() -> Self {
        let mut turns = 0;
        loop {
            match Self::unless_held() {
                Some(locked) => return locked,
                None => give_way(&mut turns),
            }
        }
    }

    /// The same without waiting; `None` where another thread holds it.
    ///
    /// # Signal safety
    /// Raw system calls. Who holds it has no handler in between, so it is never this thread.
    pub fn unless_held() -> Option<Self> {
        let held = HeldBack::all();
        let own = sys::getpid();
        loop {
            match LOCK.compare_exchange(0, own, Acquire, Relaxed) {
                Ok(_) => return Some(Self(held)),
                // A thread of the parent had it, and is not here.
                Err(other) if other != own => {
                    let _ = LOCK.compare_exchange(other, 0, Relaxed, Relaxed);
                }
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCK.store(0, Release);
    }
}
