//! What differs between processors: system calls, the thread-local pointer, the handler shim. One
//! file each, with the same names.

#[cfg(target_arch = "x86_64")]
pub mod signal_frame;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(any(feature = "inside", test))]
mod thread_table;
#[cfg(not(feature = "inside"))]
mod thread_word;
#[cfg(feature = "inside")]
pub(crate) use thread_table::forget_thread;
#[cfg(feature = "inside")]
pub use thread_table::{set_thread_word, thread_word};
#[cfg(not(feature = "inside"))]
pub use thread_word::{set_thread_word, thread_word};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the runtime supports x86-64 only, for now");
