//! The self-unwinding runtime: it arms every thread of a process, and when a thread's signal
//! arrives, the thread unwinds itself and writes the frames to shared memory.
//!
//! Start at [`handler`], where the path of a sample starts. Nothing here uses std, an allocator, or
//! errno.
//!
//! Floors, from the top; imports run downwards, and one that does not has its reason at its line:
//!
//! | floor | what it knows |
//! |---|---|
//! | [`interface`] | what C programs call |
//! | [`life`] | start, fork, thread end, process end; the change to the other signal |
//! | [`shim`], [`handler`] | what a signal means |
//! | [`clients`] | who asks for stacks, and the entry that answers |
//! | [`regions`] | labels of what the program does |
//! | `sample` | one walk, one record |
//! | [`languages`] | who knows frames that no table has, and how they are asked |
//! | [`modules`] | what code there is |
//! | [`signal_info`] | whose signal it is |
//! | [`thread`] | one thread: its state, its trigger, its records |
//! | [`trigger`], [`restart`] | what raises the signal, and the calls that it ends |
//! | [`process`], [`program_signal`], [`signal`], [`segment`], [`session`], [`config`], `budget`, `cpu_clock`, `cpu_meter`, `described`, `gate`, `handler_times`, `pace`, `trace_context` | facts |
//! | [`sys`], [`arch`], [`clock`], [`text`], [`loader`], [`environment`], [`errno`], [`error`] | the kernel, the processor, libc |
#![cfg_attr(not(test), no_std)]

pub mod arch;
mod budget;
pub mod clients;
pub mod clock;
pub mod config;
mod cpu_clock;
mod cpu_meter;
mod described;
pub mod environment;
pub mod errno;
pub mod error;
mod gate;
pub mod handler;
mod handler_times;
pub mod interface;
pub mod languages;
pub mod life;
pub mod loader;
pub mod modules;
mod pace;
pub mod process;
pub mod program_signal;
pub mod regions;
pub mod restart;
mod sample;
pub use sample::set_syscall;
pub mod segment;
pub mod session;
pub mod shim;
pub mod signal;
pub mod signal_info;
pub mod sys;
pub mod text;
pub mod thread;
mod trace_context;
pub mod trigger;

pub use engine::seccomp::SystemCall;
pub use engine::wire;
