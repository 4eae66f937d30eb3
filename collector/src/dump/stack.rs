//! What was found of a thread's stack, before anything has a name.

use super::call::Decoded;
use crate::remote::RemoteStack;
use engine::wire::sample::StopReason;

/// A thread's stack.
#[derive(Debug, Default)]
pub(super) struct ThreadStack {
    /// The call in which it sleeps.
    pub(super) call: Option<Decoded>,
    pub(super) kernel: KernelHalf,
    /// Native frames, and those of interpreters; none of a thread of the kernel's own, or one that
    /// has ended.
    pub(super) user: Option<RemoteStack>,
    /// Whether it has Python's lock; `None` of one without Python.
    pub(super) has_lock: Option<bool>,
    /// What is to be known of it, in sentences.
    pub(super) notes: Vec<String>,
}

/// The kernel's part of a stack, innermost first.
#[derive(Debug, Default)]
pub(super) enum KernelHalf {
    /// It was in user mode, or we may not know.
    #[default]
    None,
    /// By name, as `/proc` has it.
    Names(Vec<String>),
    /// By address, as a perf event has it.
    Addresses(Vec<u64>),
}

/// Why a stack ends before its root, if it does.
pub(super) fn lack(stop: StopReason, registers_known: bool) -> Option<String> {
    match stop {
        StopReason::Root => None,
        StopReason::UnreadableStack | StopReason::CopyEnded if !registers_known => Some(
            "stops here: the next step takes a register, which is not known of a thread that sleeps; --stop reads it (and stops the thread for a moment)"
                .to_owned(),
        ),
        StopReason::NoRow | StopReason::UnknownCode => Some(format!(
            "stops here: {}; code without unwind tables takes frame pointers (-fno-omit-frame-pointer)",
            stop.words()
        )),
        _ => Some(format!("stops here: {}", stop.words())),
    }
}
