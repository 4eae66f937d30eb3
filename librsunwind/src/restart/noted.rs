//! What a thread knows of the call that it is in: noted by wrappers, in ordinary code, read by the
//! handler, which writes the times.

use super::SECOND;
use super::registers::CallRegisters;
use crate::clock;
use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, compiler_fence};
use engine::wire::sample::Trigger;

/// How far below its wrapper a libc makes the system call at most, bytes (musl's `sendmsg` has
/// 1,120 of its own).
const REACH: u64 = 4096;

/// See the module.
#[derive(Debug)]
#[repr(C)]
pub struct Calls {
    /// Whether samples can end the thread's calls.
    pub(super) are_ended: AtomicBool,
    /// How often the thread was sent back to this one.
    pub(super) sent: Cell<u32>,
    /// The stack pointer as libc's function was entered; 0 while a note is being made.
    pub(super) sp: Cell<u64>,
    /// The system call that the function makes.
    pub(super) number: Cell<i64>,
    /// Its first arguments, as far as they are known.
    pub(super) arguments: [Cell<u64>; 3],
    /// When it began (`CLOCK_MONOTONIC`, ns); 0 if that is not known.
    pub(super) since_ns: Cell<u64>,
    /// When it is over; 0 before it was made again for the first time. With a beginning only.
    pub(super) until_ns: Cell<u64>,
    /// What is left of its time: a `struct timespec` for the call to read, and for the kernel to
    /// write.
    pub(super) rest: [Cell<u64>; 2],
    /// A signal mask for it to wait under.
    pub(super) mask: [Cell<u64>; 16],
    /// Where the thread was sent back last.
    pub(super) sent_from: Cell<u64>,
    /// What is known to be there of the thread's stack: its lowest byte, and behind its highest.
    pub(super) known_stack: Cell<(u64, u64)>,
}

/// Stands for an argument that is not known.
pub const UNKNOWN: u64 = u64::MAX;

impl Calls {
    /// Where [`Calls::are_ended`] is found, for a shim that does what [`Calls::note`] does.
    pub const ARE_ENDED: usize = offset_of!(Self, are_ended);
    /// How often the thread was sent back to this one; 32 bits.
    pub const SENT: usize = offset_of!(Self, sent);
    /// The stack pointer.
    pub const SP: usize = offset_of!(Self, sp);
    /// The system call.
    pub const NUMBER: usize = offset_of!(Self, number);
    /// Its first three arguments.
    pub const ARGUMENTS: usize = offset_of!(Self, arguments);
    /// When it began.
    pub const SINCE_NS: usize = offset_of!(Self, since_ns);

    /// Nothing noted.
    pub const fn new() -> Self {
        Self {
            are_ended: AtomicBool::new(false),
            sent: Cell::new(0),
            sp: Cell::new(0),
            number: Cell::new(0),
            arguments: [const { Cell::new(0) }; 3],
            since_ns: Cell::new(0),
            until_ns: Cell::new(0),
            rest: [const { Cell::new(0) }; 2],
            mask: [const { Cell::new(0) }; 16],
            sent_from: Cell::new(0),
            known_stack: Cell::new((0, 0)),
        }
    }

    /// What samples the thread from now on: events that sample kernel mode end its calls. So do CPU
    /// timers: before Linux 5.9 wherever a tick finds the thread in the kernel, and since then in a
    /// wait for an `io_uring`, which looks after what was put off until the thread leaves.
    pub(crate) fn ended_by(&self, trigger: Trigger) {
        let ends = matches!(trigger, Trigger::PerfKernel | Trigger::Timer);
        self.are_ended.store(ends, Relaxed);
    }

    /// Whether signals of what samples the thread may end its calls.
    #[inline]
    pub fn are_ended(&self) -> bool {
        self.are_ended.load(Relaxed)
    }

    /// Notes which system call a function of libc is about to make: by what number, with which
    /// arguments ([`UNKNOWN`] where the function has others), from below which stack pointer.
    #[inline]
    pub fn note(&self, sp: u64, number: i64, arguments: [u64; 3]) {
        self.sp.set(0);
        // The handler comes in between, on this thread.
        compiler_fence(SeqCst);
        self.number.set(number);
        for (known, argument) in self.arguments.iter().zip(arguments) {
            known.set(argument);
        }
        self.since_ns.set(0);
        self.sent.set(0);
        compiler_fence(SeqCst);
        self.sp.set(sp);
    }

    /// Notes that the call's time counts from now on. Out of the way of calls without one.
    #[inline(never)]
    pub fn note_time(&self) {
        self.until_ns.set(0);
        self.since_ns.set(clock::monotonic_ns());
    }

    /// Where the kernel may write what is left of a sleep's time.
    pub fn rest(&self) -> u64 {
        self.rest.as_ptr() as u64
    }

    /// A signal mask that outlives the wrapper, of the size that libc's type has.
    pub fn mask(&self, signals: u64) -> u64 {
        if let Some(first) = self.mask.first() {
            first.set(signals);
        }
        self.mask.as_ptr() as u64
    }

    /// Whether what was noted is about the call behind which a thread stands.
    pub(super) fn is_of(&self, at: &CallRegisters) -> bool {
        let below = self.sp.get().wrapping_sub(at.sp);
        let is_same = |(noted, argument): (&Cell<u64>, u64)| {
            let noted = noted.get();
            // The lower halves: a libc may have made an `int` longer, with its sign or without.
            noted == UNKNOWN || noted as u32 == argument as u32 || argument == self.rest()
        };
        let known = match self.number.get() {
            libc::SYS_sendmsg | libc::SYS_recvmsg => 1, // musl copies the header
            _ => self.arguments.len(),
        };
        let mut arguments = self.arguments.iter().zip(at.arguments).take(known);
        self.sp.get() != 0 && below < REACH && arguments.all(is_same)
    }

    /// What is left of a time, ns, that began with the call.
    pub(super) fn left_ns(&self, given_ns: u64) -> u64 {
        if self.until_ns.get() == 0 {
            self.until_ns
                .set(self.since_ns.get().saturating_add(given_ns));
        }
        self.until_ns.get().saturating_sub(clock::monotonic_ns())
    }

    pub(super) fn set_rest(&self, left_ns: u64) {
        let [seconds, nanoseconds] = &self.rest;
        seconds.set(left_ns / SECOND);
        nanoseconds.set(left_ns % SECOND);
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self::new()
    }
}
