//! Clients: who asks a thread to unwind itself. The CPU sampler is one; up to [`CLIENTS`] more are
//! parts of the program: an allocation sampler, a lock profiler, an application that wants to know
//! how it came here.
//!
//! A **request** is a bit in a mask of its thread. An **entry** is what answers it: one run of the
//! handler, in which every client that asked is shown the same stack, once, under the same
//! **nonce** (never 0, and never used again in the process). So however many ask, and however
//! often, there is one walk per entry.
//!
//! ```text
//! request ─► bit in the thread's mask
//! entry: take the mask ─► walk, the first time ─► callback of each ─► take the mask again …
//! ```
//!
//! How a request outside of an entry becomes one ([`broker::request`]):
//!
//! - **In a recorded program by the signal**, with `rt_tgsigqueueinfo` to the thread itself, all
//!   signals held back until the bit and the nonce are in place. The kernel delivers it on the way
//!   back from that call, or when the thread lets the signal through again; until then all requests
//!   are of one entry, and so is a CPU sample that falls into it. It has a positive `si_code`,
//!   which the kernel never drops for want of memory, and no program uses.
//! - **Otherwise by a walk at once**, on the thread's handler stack, with all signals held back as
//!   in the handler: in a program that is not recorded, whose SIGPROF is its own, and under a
//!   seccomp filter, which may answer a signal to oneself by killing the process.
//!
//! A request may also be left to the thread's next entry, whoever begins that
//! ([`broker::request_later`]): its bit and its nonce are there at once, without a walk.
//!
//! A request made within an entry (by a callback) only sets its bit: the entry looks again before
//! it ends. One that was answered in this entry already is not answered again.
//!
//! | file | |
//! |---|---|
//! | [`api`] | **for Rust programs**: the process's broker, ours or the loaded library's |
//! | [`broker`] | register, unregister, request: what the C functions of `include/rsunwind.h` do |
//! | `table` | the registered clients |
//! | `entry` | the loop that answers |
//! | [`counts`] | how much was asked and answered |
//! | `attend` | the state of threads that the runtime did not start |
//! | [`backtrace`] | a thread's own stack, without any of that |

pub mod api;
mod attend;
pub mod backtrace;
pub mod broker;
pub mod counts;
pub(crate) mod entry;
mod stack;
mod table;

pub use crate::error::Error;
pub use crate::thread::requests::CLIENTS;
pub use api::Client;
pub use attend::{after_fork_in_child, is_prepared};
pub use stack::{Callback, Counts, Stack};
