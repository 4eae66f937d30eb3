//! SFrame stack-trace tables, versions 1 to 3.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

#[cfg(feature = "encode")]
extern crate alloc;

mod abi;
mod address;
mod bytes;
#[cfg(feature = "convert")]
mod convert;
#[cfg(feature = "encode")]
mod encode;
mod error;
mod fre;
mod function;
mod header;
mod index;
mod indexed;
mod recovery;
mod row;
mod section;
mod verify;

pub use abi::Abi;
pub use address::Address;
pub use bytes::ByteOrder;
#[cfg(feature = "convert")]
pub use convert::{Conversion, Converted, EhFrame, MalformedEntry, Reason};
#[cfg(feature = "encode")]
pub use encode::{EncodeError, Encoder, FunctionRows};
pub use error::Error;
pub use function::{Function, Rows};
pub use header::{Header, Version};
pub use indexed::IndexedSection;
pub use row::{Base, Cfa, PacKey, Register, Row, Rule};
pub use section::{Functions, Section};
