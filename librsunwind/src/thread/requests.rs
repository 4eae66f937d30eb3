//! What a thread has been asked for. Used by that thread alone, with signals held back: the atomics
//! are there because the handler, ordinary code and callbacks all reach it through pointers of
//! their own.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// How many clients there can be. (The kernel's own broker, with the same two bits set aside, has
/// as many.)
pub const CLIENTS: usize = 62;

/// A registered client: its place, and which of those that were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub index: usize,
    pub generation: u32,
}

impl Known {
    /// Its bit in a thread's mask.
    pub fn bit(self) -> u64 {
        1u64.wrapping_shl(self.index as u32)
    }
}

/// The CPU sampler's bit; it has no callback, and writes records.
pub(crate) const CPU_SAMPLER: u64 = 1 << CLIENTS;

/// The newest nonce of the process.
static NONCES: AtomicU64 = AtomicU64::new(0);

/// See the module.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Asked and not yet answered.
    pending: AtomicU64,
    /// Answered in this entry.
    answered: AtomicU64,
    /// Of the entry that will answer what is pending, or that is under way; 0 if there is neither.
    nonce: AtomicU64,
    /// Whether an entry is under way.
    inside: AtomicBool,
    /// Which client it was that asked, by its place.
    generations: [AtomicU32; CLIENTS],
}

/// A request that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Names the entry that answers; never 0.
    pub nonce: u64,
    /// Whether the same client had asked in this entry before: there is one callback for both.
    pub already: bool,
}

impl Requests {
    pub fn new() -> Self {
        Self {
            pending: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            nonce: AtomicU64::new(0),
            inside: AtomicBool::new(false),
            generations: [const { AtomicU32::new(0) }; CLIENTS],
        }
    }

    /// Whether anything is pending.
    pub fn any(&self) -> bool {
        self.pending.load(Relaxed) != 0
    }

    /// Whether this runs within an entry: in a callback.
    pub fn is_inside(&self) -> bool {
        self.inside.load(Relaxed)
    }

    /// Gives an entry under way up, and what it had still to answer.
    pub fn abandon(&self) {
        self.pending.store(0, Relaxed);
        self.end();
    }

    /// A client asks; gives besides whether the request of one that was in the same place before,
    /// and is gone, is given up.
    pub(crate) fn ask(&self, client: Known) -> (Asked, bool) {
        let nonce = self.nonce_of_entry();
        let bit = client.bit();
        let waits = self.pending.load(Relaxed) & bit != 0;
        let has = waits || self.answered.load(Relaxed) & bit != 0;
        let same = self.generation(client.index) == client.generation;
        if let Some(generation) = self.generations.get(client.index) {
            generation.store(client.generation, Relaxed);
        }
        let already = has && same;
        if !already {
            self.pending.fetch_or(bit, Relaxed);
            self.answered.fetch_and(!bit, Relaxed);
        }
        (Asked { nonce, already }, waits && !same)
    }

    /// The CPU sampler asks.
    pub(crate) fn ask_for_sampler(&self) {
        self.pending.fetch_or(CPU_SAMPLER, Relaxed);
    }

    /// An entry begins; gives its nonce.
    pub(crate) fn begin(&self) -> u64 {
        self.inside.store(true, Relaxed);
        self.nonce_of_entry()
    }

    /// What is pending, from now on answered.
    pub(crate) fn take(&self) -> u64 {
        let taken = self.pending.swap(0, Relaxed);
        self.answered.fetch_or(taken, Relaxed);
        taken
    }

    /// The entry is over.
    pub(crate) fn end(&self) {
        self.answered.store(0, Relaxed);
        self.nonce.store(0, Relaxed);
        self.inside.store(false, Relaxed);
    }

    /// Which client at that place asked.
    pub(crate) fn generation(&self, index: usize) -> u32 {
        self.generations
            .get(index)
            .map_or(0, |generation| generation.load(Relaxed))
    }

    /// The nonce of the entry that will answer what is asked now, or of the one under way.
    pub(crate) fn nonce_of_entry(&self) -> u64 {
        let mut nonce = self.nonce.load(Relaxed);
        while nonce == 0 {
            nonce = NONCES.fetch_add(1, Relaxed).wrapping_add(1);
        }
        self.nonce.store(nonce, Relaxed);
        nonce
    }
}
