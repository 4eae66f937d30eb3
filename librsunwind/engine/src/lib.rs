//! What may run inside a signal handler: the unwinder and the wire contract.
//!
//! Start at [`wire`] for what a recording looks like.
//!
//! Nothing here allocates, locks, formats, or panics; memory comes from the caller.
#![cfg_attr(not(test), no_std)]

pub mod address;
pub mod wire;
