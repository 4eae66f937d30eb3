//! The life of the process and of its threads: start, fork, thread end, process end.

pub mod charge;
pub mod complaint;
mod family;
pub mod follow;
mod identity;
#[cfg(feature = "inside")]
pub mod inside;
pub mod leave;
pub mod process;
pub mod start;
mod thread;
pub mod thread_end;
