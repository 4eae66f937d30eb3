//! How a thread came to be, and whether its set-up is complete.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What `pthread_create` was given.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The thread's function.
    pub function: usize,
    /// Its argument.
    pub argument: *mut c_void,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            function: 0,
            argument: ptr::null_mut(),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Birth {
    /// What the thread is to run: written by its creator before it exists, then its own, in
    /// ordinary code.
    pub start: Cell<Start>,
    /// Both ordinary code and the handler finish it.
    unfinished: AtomicBool,
}

impl Birth {
    /// Whether it is not yet fully set up: the first signal does the rest (fork children).
    pub(crate) fn is_unfinished(&self) -> bool {
        self.unfinished.load(Relaxed)
    }

    /// See [`Birth::is_unfinished`].
    pub(crate) fn set_unfinished(&self, unfinished: bool) {
        self.unfinished.store(unfinished, Relaxed);
    }

    /// For the next thread.
    pub(super) fn reset(&self) {
        self.set_unfinished(false);
        self.start.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_thread_finds_nothing_of_the_one_before() {
        let birth = Birth::default();
        let start = Start {
            function: 1,
            argument: ptr::null_mut(),
        };
        birth.start.set(start);
        birth.set_unfinished(true);
        birth.reset();
        assert_eq!(
            (birth.start.get().function, birth.is_unfinished()),
            (0, false)
        );
    }
}
