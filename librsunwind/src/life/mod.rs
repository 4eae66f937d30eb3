//! The life of the process and of its threads: start, fork, thread end, process end.

pub mod charge;
pub mod complaint;
mod family;
pub mod follow;
mod identity;
#[cfg(feature = "inside")]
pub mod inside;
pub mod leave;
#[cfg(all(feature = "outside", not(feature = "inside")))]
pub mod linked;
#[cfg(feature = "outside")]
mod outside;
pub mod process;
pub mod start;
mod thread;
pub mod thread_end;
