#![doc = include_str!("../README.md")]

mod attributes;
mod bytes;
pub mod format;
mod read;

pub use attributes::{Clock, Event, Fields};
pub use bytes::Malformed;
pub use read::{PerfFile, Record, What};
