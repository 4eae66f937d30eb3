//! The thread that is armed, as far as its trigger needs to know it.

use super::handover::Recipient;

/// What arming needs to know of the thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'s> {
    /// Its id: it is the calling one.
    pub tid: u32,
    /// Comes back in `si_value` of a timer's signals.
    pub tag: usize,
    /// What it is asked by.
    pub signal: i32,
    /// Its last nonce.
    pub nonce: u64,
    /// The collector that may empty its ring.
    pub recipient: Option<Recipient<'s>>,
    /// Sampling periods that its samples stand for.
    pub periods: u64,
    /// How long it may live.
    pub outlook: Outlook,
}

/// What is expected of the life of a thread that is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It has lived long enough to be worth what a ring of ample size costs.
    Lasting,
    /// It is a program that has just begun.
    Program,
    /// It has just begun, and may end before it is sampled.
    Unknown,
    /// The same, and those before it did end so.
    Brief,
}
