#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod affordable;
pub mod cursor;
pub mod elf_image;
pub mod frame_buffer;
pub mod interpreter;
pub mod language;
pub mod last_walk;
pub mod memory;
pub mod mix;
pub mod module_map;
pub mod notes;
pub mod perf_event;
pub mod python;
pub mod registers;
pub mod rule;
pub mod rule_cache;
pub mod seccomp;
pub mod table;
pub mod unwind;
pub mod v8;
mod walk;

// What is written, by whom it is read: what uses the engine has it from here.
pub use ::wire;
pub use wire::address;
