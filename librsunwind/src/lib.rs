//! The self-unwinding runtime: it arms every thread of a process, and when a thread's signal arrives, the thread unwinds itself and
//! writes the frames to shared memory.
//!
//! Start at [`handler`], where the path of a sample starts. Nothing here uses std, an allocator, or errno.
#![cfg_attr(not(test), no_std)]

pub mod arch;
pub mod clients;
pub mod clock;
pub mod config;
mod cpu_meter;
pub mod errno;
pub mod handler;
pub mod loader;
pub mod modules;
pub mod process;
mod sample;
pub use sample::set_syscall;
pub mod segment;
pub mod session;
pub mod sys;
pub mod text;
pub mod thread;
pub mod trigger;

pub use engine::wire;
