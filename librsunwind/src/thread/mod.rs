//! One profiled thread: what is known of it ([`ThreadState`]), and what can be done with that
//! alone: arm it, write its records.
//!
//! All of it is found through one thread-local word, the address of the state. [`layout`] says what
//! lies where.
//!
//! A fork child sees the state filled with zeros (`MADV_WIPEONFORK`): `magic` is gone, and nothing
//! inherited is ever touched, but the labels of the regions that it is born in.

mod account;
mod arming;
mod belief;
mod birth;
mod early;
pub mod handler_stack;
mod labels;
mod layout;
mod memory;
mod output;
#[cfg(feature = "outside")]
pub(crate) mod outside;
mod records;
pub(crate) mod regions;
mod registry;
pub mod requests;
mod room;
mod shared;
mod shim_words;
mod spared;
mod state;
mod trigger_slot;
mod unsampled;

pub use arming::Moment;
pub use belief::Belief;
pub(crate) use belief::Information;
pub use birth::{Birth, Start};
pub use registry::{for_each_other, wait_for_walks};
pub use shared::Shared;
pub use state::ThreadState;
pub use trigger_slot::TriggerSlot;
