//! Languages: who knows frames that no table has, an interpreter or a JIT, says so here, and is
//! asked in walks.
//!
//! What a language is and what its callback may do is in `include/rsunwind.h`; when a walk asks is
//! in [`engine::language`]. A callback is not trusted to be right: what it asks for and answers is
//! checked ([`mod@asking`]), and one that gives trouble again and again is switched off, which the
//! recording says.
//!
//! ```text
//! walk ─► frame of a registered range, or over an entry ─► callback ─► answer ─► walk goes on
//!                                                             └ rsunwind_load …, rsunwind_frame …
//! ```
//!
//! | file | |
//! |---|---|
//! | [`api`] | **for Rust programs** |
//! | [`table`] | the registered languages |
//! | `ranges` | their code |
//! | [`mod@asking`] | the languages in one walk: states, entries, budgets, what is believed |
//! | `call` | one call of a callback: what it reads, gives, describes |
//! | `calls` | what callbacks call, by the C interface |
//! | [`reads`] | guarded reads |
//! | [`jit`], `arena` | code of JITs, registered without a callback, and the memory for it |
//! | `lock` | who changes what is registered |
//! | [`codes`] | descriptions of code objects, and the record that tells them |
//! | `noted` | languages that files describe themselves |
//! | `python`, `v8` | CPython and V8, which register nothing |
//! | `memory` | how these two read |
//! | [`layout`] | what crosses the C interface |

pub mod api;
mod arena;
pub mod asking;
mod call;
mod calls;
pub mod codes;
pub mod jit;
pub mod layout;
mod lock;
mod memory;
mod noted;
mod python;
mod ranges;
pub mod reads;
pub mod table;
mod v8;

use crate::thread::ThreadState;
use asking::Asking;
use engine::registers::Registers;

/// Whether there is anybody to ask.
#[inline]
pub(crate) fn any() -> bool {
    table::any() || jit::any()
}

/// The languages in a walk of this thread from there.
pub(crate) fn asking<'a>(this: &'a ThreadState, interrupted: &'a Registers) -> Asking<'a> {
    Asking::new(this, interrupted, &calls::FUNCTIONS)
}

/// Whether the walk just made has met an interpreter that nobody knew: then there is somebody to
/// ask from now on. While the thread is marked as walking, which who closes a library waits for.
///
/// # Signal safety
/// Three loads; raw system calls when it is so.
#[inline]
pub(crate) fn has_come(this: &ThreadState) -> bool {
    // All are asked.
    python::has_come(this) | v8::has_come(this) | noted::have_come(this)
}

/// Before a library is closed: takes back what files have described themselves, but the program's;
/// `false` if a callback does not return, and the library must stay.
pub fn let_go() -> bool {
    noted::let_go()
}

/// In a fork child: none of the parent's callbacks is under way. What was described there is
/// forgotten with the memory that says so.
pub fn after_fork_in_child() {
    table::forget_running();
    if jit::any() {
        // Codes whose rules are cached would not be described to the recording of this process.
        table::forget_rules();
    }
}
