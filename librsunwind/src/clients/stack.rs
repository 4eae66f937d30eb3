//! What crosses the C interface; the layouts are those of `include/rsunwind.h`.
//!
//! # Safety
//! A [`Stack`] points at frames that live as long as the callback that is shown it.
#![allow(unsafe_code)]

use core::ffi::c_void;
use engine::wire::sample::Frame;

/// A stack as it is shown to a callback: `struct rsunwind_stack`.
#[derive(Debug)]
#[repr(C)]
pub struct Stack {
    pub(super) frames: *const Frame,
    pub(super) count: usize,
    /// Names the entry: the same that the requests were given.
    pub nonce: u64,
    /// When the entry began (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// The stack pointer where the walk began.
    pub stack_pointer: u64,
    /// Frames left out of the middle of a very deep stack, and how many stand before that gap.
    pub elided: u64,
    /// See [`Stack::elided`].
    pub elided_at: u64,
    /// Why the walk ended: a number of [`engine::wire::sample::StopReason`]; 0 for a complete
    /// stack.
    pub stop: u32,
    /// Of [`engine::wire::sample::flags`].
    pub flags: u32,
}

impl Stack {
    /// The frames, from the leaf to the root.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        // SAFETY: set by the entry to frames that outlive the callback, and this value cannot be
        // kept longer.
        unsafe { core::slice::from_raw_parts(self.frames, self.count) }
    }
}

/// A client's callback: the stack, its nonce, and what was registered with it. It runs on the
/// thread whose stack it is, with all signals held back, and may do what a signal handler may.
pub type Callback = unsafe extern "C" fn(stack: *const Stack, nonce: u64, data: *mut c_void);

/// What has happened in the process so far: `struct rsunwind_counts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// Requests accepted: each leads to one callback, or is cancelled.
    pub requests: u64,
    /// Entries in which somebody had asked, the CPU sampler included.
    pub entries: u64,
    /// Walks made for them.
    pub unwinds: u64,
    /// Callbacks called.
    pub callbacks: u64,
    /// Requests whose client was unregistered before its callback.
    pub cancelled: u64,
}
