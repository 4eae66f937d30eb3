#![doc = include_str!("../README.md")]
//!
//! ## The specification
//!
//! Section numbers in this documentation are those of *The SFrame format*, version 3, which comes
//! with binutils (`libsframe/doc/sframe-spec.texi`;
//! [online](https://sourceware.org/binutils/docs/sframe-spec.html)).
//!
//! | type | section |
//! |---|---|
//! | [`Header`], [`Version`], [`ByteOrder`] | [2.1, 2.2](https://sourceware.org/binutils/docs/sframe-spec.html#SFrame-Header) |
//! | [`Abi`] | [2.2.1](https://sourceware.org/binutils/docs/sframe-spec.html#SFrame-ABI_002farch-Identifier) |
//! | [`Section`] | [2](https://sourceware.org/binutils/docs/sframe-spec.html#SFrame-Section) |
//! | [`Function`], [`Functions`], [`Address`], [`IndexedSection`] | [2.3](https://sourceware.org/binutils/docs/sframe-spec.html#SFrame-Function-Descriptor-Entries) |
//! | [`Rows`], [`Register`] | [2.4](https://sourceware.org/binutils/docs/sframe-spec.html#SFrame-Frame-Row-Entries) |
//! | [`Row`], [`Cfa`], [`Base`], [`Rule`], [`PacKey`] | [3](https://sourceware.org/binutils/docs/sframe-spec.html#Interpretation-of-SFrame-FREs) |
#![cfg_attr(
    feature = "encode",
    doc = "| [`Encoder`], [`FunctionRows`], [`EncodeError`] | [2](https://sourceware.org/binutils/docs/sframe-spec.html#SFrame-Section), written |"
)]
#![cfg_attr(
    feature = "convert",
    doc = "| [`EhFrame`], [`Conversion`], [`Converted`], [`Reason`], [`MalformedEntry`] | [3](https://sourceware.org/binutils/docs/sframe-spec.html#Interpretation-of-SFrame-FREs), from another format |"
)]
//! | [`Error`] | the section of each field, at its variants |
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
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
mod usual;
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
