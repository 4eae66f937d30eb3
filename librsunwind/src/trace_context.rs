//! Which span of a trace a thread is in, where the program tells any profiler: OpenTelemetry's
//! thread context (proposal 4947), a thread-local pointer to a record that the program exports as
//! `otel_thread_ctx_v1`.
//!
//! ```text
//! record: | trace id, 16 bytes | span id, 8 | valid, 1 | …
//! ```
//!
//! The variable is looked for once, when profiling begins, among those that the program's own file
//! exports: they are at the same distance from every thread's block. Libraries' are left out:
//! where theirs are only the loader could say, by functions that take its lock and the program's
//! `malloc`, and leave their mark in `dlerror`.
//!
//! # Safety
//! What the pointer leads to is probed before it is read.
#![allow(unsafe_code)]

use crate::loader;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use engine::memory::{is_readable, load_verified};
use engine::registers::thread_block;

/// Trace id and span id, as they lie there.
pub(crate) type Span = [u64; 3];

/// From where on a record says whether it is whole.
const VALID: u64 = 24;
/// How far the variable lies below a thread's block, bytes; 0 if there is none.
static BELOW: AtomicU64 = AtomicU64::new(0);

/// Looks for the variable, before the program's own code; the program's headers are there, and so
/// many.
pub(crate) fn find(headers: (usize, usize)) {
    let below = loader::below_thread_block(headers, c"otel_thread_ctx_v1");
    BELOW.store(below.unwrap_or(0), Relaxed);
}

/// The span that the calling thread is in.
///
/// # Signal safety
/// Probes and loads; a load where there is no variable.
pub(crate) fn span() -> Option<Span> {
    let below = BELOW.load(Relaxed);
    if below == 0 {
        return None;
    }
    // SAFETY: a word of this thread's own memory.
    let record = unsafe { load_verified(thread_block().wrapping_sub(below)) };
    if !is_readable(record) || !is_readable(record.wrapping_add(VALID)) {
        return None;
    }
    // SAFETY: (all) just found readable; the thread itself, which is here, is who changes it.
    let load = |at: u64| unsafe { load_verified(record.wrapping_add(at)) };
    let is_valid = load(VALID) & 0xff == 1;
    let span = [load(0), load(8), load(16)];
    let [high, low, id] = span;
    (is_valid && high | low != 0 && id != 0).then_some(span)
}
