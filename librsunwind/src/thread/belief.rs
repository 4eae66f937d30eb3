//! What the program believes of the signal: whether it has blocked it, and what it has coming.
//!
//! Ordinary code (the interposed functions) and the handler both read and write it: atomics.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

/// A `siginfo_t`, in words.
pub(crate) type Information = [u64; 16];

/// See the module.
#[derive(Debug, Default)]
pub struct Belief {
    /// 0 before the thread runs.
    signal: AtomicI32,
    blocked: AtomicBool,
    owed: AtomicBool,
    /// What the kernel said of the signal that is owed. The handler's alone.
    information: [AtomicU64; 16],
    raised: AtomicBool,
    shown: AtomicBool,
}

impl Belief {
    /// What the thread's trigger raises; 0 before it runs.
    pub fn signal(&self) -> i32 {
        self.signal.load(Relaxed)
    }

    /// See [`Belief::signal`].
    pub fn set_signal(&self, signal: i32) {
        self.signal.store(signal, Relaxed);
    }

    /// Whether the program believes that this is blocked.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Relaxed)
    }

    /// It believes so, or no longer.
    pub fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Relaxed);
    }

    /// Whether a signal that the program is owed waits for it to unblock.
    pub fn is_owed(&self) -> bool {
        self.owed.load(Relaxed)
    }

    /// One has come, of which the kernel said this; the first one counts, as the kernel has it. For
    /// the handler.
    pub(crate) fn owe(&self, information: &Information) {
        if !self.is_owed() {
            for (kept, word) in self.information.iter().zip(information) {
                kept.store(*word, Relaxed);
            }
        }
        self.owed.store(true, Relaxed);
    }

    /// What is due to the program now that nothing of it is blocked, if anything is. For the
    /// handler.
    pub(crate) fn take_due(&self) -> Option<Information> {
        let is_due = !self.is_blocked() && self.take_owed();
        is_due.then(|| {
            let mut information = Information::default();
            for (word, kept) in information.iter_mut().zip(&self.information) {
                *word = kept.load(Relaxed);
            }
            information
        })
    }

    /// The program raises it on this thread: the handler is to see it at the next signal, whosever
    /// that is.
    pub fn raise(&self) {
        self.raised.store(true, Relaxed);
    }

    /// Whether it has done so, and the handler does not know yet.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Relaxed)
    }

    /// The same; whoever asks sees to it.
    pub fn take_raised(&self) -> bool {
        self.raised.swap(false, Relaxed)
    }

    /// Whether there is one; whoever asks sends it.
    pub fn take_owed(&self) -> bool {
        self.owed.swap(false, Relaxed)
    }

    /// It is blocked for real, too, or no longer; gives whether it was.
    pub fn show(&self, shown: bool) -> bool {
        self.shown.swap(shown, Relaxed)
    }

    /// For the next thread.
    pub(super) fn reset(&self) {
        self.set_signal(0);
        self.set_blocked(false);
        self.take_owed();
        self.take_raised();
        self.show(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_sent_once() {
        let belief = Belief::default();
        belief.set_blocked(true);
        belief.owe(&[1; 16]);
        belief.owe(&[2; 16]);
        assert_eq!(belief.take_due(), None, "it is blocked");
        belief.set_blocked(false);
        assert_eq!(belief.take_due(), Some([1; 16]), "the first one");
        assert!(!belief.is_owed() && belief.take_due().is_none());
        belief.set_blocked(true);
        belief.owe(&[3; 16]);
        belief.raise();
        belief.reset();
        assert!(!belief.is_raised());
        assert!(!belief.is_blocked() && !belief.is_owed());
    }
}
