//! The handler's stack, in front of the thread's state, and its second use: it is lent to the
//! kernel as the thread's alternate signal stack while the program has set none. So our signal
//! takes nothing of the program's stacks, however little room they have (16 KB threads, split
//! stacks, coroutines): the kernel's frame alone is 3.4 KB with AVX-512, 11 KB where AMX is in use.
//!
//! The program sees nothing of it: `sigaltstack` says what it has set
//! (`preload/src/interpose/alternate_stack.rs`), the frame of a handler of its own that lands here
//! is moved to where it would have been ([`off_it`]), and says nothing of an alternate stack. What
//! it says instead is what the kernel makes of it when the handler returns. `SS_DISABLE`, as
//! threads have it from their start: none is set from then on, and the next sample lends ours again
//! ([`HandlerStack::lend_again`]), without a system call, by the frame it returns from. Nothing, as
//! processes have it until they take a stack away for the first time: a stack of no size, which is
//! refused; ours stays, or what the handler has set.
//!
//! Programs that look after alternate stacks without libc see what the kernel has
//! ([`leave_visible`]): Go takes a stack that it finds for one of C's, and insists that its
//! handlers come in there.
//!
//! # Safety
//! While the kernel has the stack, no other thread may get the state.
#![allow(unsafe_code)]

use super::layout;
pub(crate) use super::layout::HANDLER_STACK as SIZE;
use crate::arch::{self, signal_frame};
use crate::program_signal;
use crate::restart;
use crate::sys;
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, compiler_fence};

/// What a store raises where there is no stack.
const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// See the module.
#[derive(Debug)]
pub struct HandlerStack {
    /// Its end.
    top: usize,
    /// Whether the kernel was ever lent it by this thread. Written in ordinary code and by the
    /// handler.
    lent: Cell<bool>,
    /// What frames would have for flags without it: `SS_DISABLE` or 0.
    flags: Cell<c_int>,
    /// Whether a frame is being moved off it.
    moves: Cell<bool>,
}

impl HandlerStack {
    /// The one that ends there.
    pub(super) const fn new(top: usize) -> Self {
        Self {
            top,
            lent: Cell::new(false),
            flags: Cell::new(0),
            moves: Cell::new(false),
        }
    }

    /// Its end.
    pub(super) const fn top(&self) -> usize {
        self.top
    }

    /// That of a thread, by its word: a state, perhaps a wiped one, or null.
    fn of(word: *mut c_void) -> Self {
        Self::new(top_of(word))
    }

    /// For the next thread.
    pub(super) fn reset(&self) {
        self.lent.set(false);
        self.flags.set(0);
        self.moves.set(false);
    }

    /// What the kernel is told.
    const fn as_alternate(&self) -> libc::stack_t {
        libc::stack_t {
            ss_sp: self.top.wrapping_sub(SIZE) as *mut c_void,
            ss_flags: 0,
            ss_size: SIZE,
        }
    }

    /// Whether it is this one.
    fn is(&self, stack: &libc::stack_t) -> bool {
        self.top != 0 && stack.ss_sp == self.as_alternate().ss_sp
    }

    /// Lends it to the kernel, if the program has set none. `before` is the word of the thread that
    /// forked this process, or null: the stack that it may have been lent is no longer there. For
    /// ordinary code.
    pub fn lend(&self, before: *mut c_void) {
        // Under a filter, which may kill for the call, it could not be taken back either.
        if !may_be_asked() || VISIBLE.load(Relaxed) {
            return;
        }
        self.lent.set(true);
        if let Ok(old) = sys::alternate_stack(Some(&self.as_alternate()))
            && old.ss_size != 0
            && !Self::of(before).is(&old)
        {
            let _ = sys::alternate_stack(Some(&old));
        }
    }

    /// The same on a thread for which the kernel has taken it away, as for each that begins.
    pub fn lend_anew(&self) {
        self.flags.set(libc::SS_DISABLE);
        self.lend(ptr::null_mut());
    }

    /// The same where the program may have set one a moment ago, or none.
    pub fn lend_if_free(&self) {
        if sys::alternate_stack(None).is_ok_and(|now| now.ss_size == 0) {
            self.lend_anew();
        }
    }

    /// The same in the handler that was entered with this context, if the kernel has none on this
    /// thread.
    ///
    /// # Signal safety
    /// A system call at most, and that only where the program has changed something.
    ///
    /// # Safety
    /// The kernel's, and the handler returns to it.
    pub(crate) unsafe fn lend_again(&self, context: *mut c_void, tid: u32) {
        // SAFETY: the caller's promise.
        let stack = unsafe { signal_frame::alternate_stack(context) };
        // Not in the child of a vfork, which borrows its parent's state.
        let is_lendable = || may_be_asked() && (self.lent.get() || !VISIBLE.load(Relaxed));
        if stack.ss_size == 0 && is_lendable() && tid == sys::gettid() {
            self.lent.set(true);
            self.flags.set(stack.ss_flags);
            *stack = self.as_alternate();
        }
    }

    /// Takes it back, at the end of the thread; `false` if signals may still come in there.
    pub(crate) fn take_back(&self) -> bool {
        if !self.lent.get() {
            return true;
        }
        if !may_be_asked() {
            return false;
        }
        match sys::alternate_stack(Some(&NONE)) {
            Ok(old) if old.ss_size != 0 && !self.is(&old) => {
                sys::alternate_stack(Some(&old)).is_ok()
            }
            Ok(_) => true,
            // The thread is on its alternate stack: on this one, or on one of the program's, where
            // this one is not set.
            Err(_) => !self.holds(arch::stack_pointer() as usize),
        }
    }

    fn holds(&self, address: usize) -> bool {
        self.top.wrapping_sub(address) <= SIZE
    }

    /// From where ordinary code may use it: its end, or below what a handler of the program's has
    /// there.
    pub(crate) fn free(&self) -> usize {
        /// What the caller may have below its stack pointer.
        const BELOW: usize = 1024;
        let sp = arch::stack_pointer() as usize;
        match self.holds(sp) {
            true => sp.wrapping_sub(BELOW) & !15,
            false => self.top,
        }
    }
}

/// Set once the program is known to look after alternate stacks by system calls of its own.
static VISIBLE: AtomicBool = AtomicBool::new(false);

/// The program may have found a stack of ours, and count on it from now on, as Go does: what the
/// kernel has stays, and no other thread's is lent.
pub fn leave_visible() {
    VISIBLE.store(true, Relaxed);
}

/// Where the handler's stack of a thread with that word ends, whose state may be wiped; 0 without.
pub(crate) fn top_of(word: *mut c_void) -> usize {
    match word.is_null() {
        true => 0,
        false => layout::stack_top(word as usize),
    }
}

/// What the kernel says where there is none.
const NONE: libc::stack_t = libc::stack_t {
    ss_sp: ptr::null_mut(),
    ss_flags: libc::SS_DISABLE,
    ss_size: 0,
};

/// Whether the kernel may be told, and asked. A filter may kill for it.
fn may_be_asked() -> bool {
    restart::may_make(libc::SYS_sigaltstack, None)
}

/// Whether it is the one that the calling thread may have lent: by its word, also in the child of a
/// fork that finds its state wiped.
fn is_lent(stack: &libc::stack_t) -> bool {
    HandlerStack::of(arch::thread_word()).is(stack)
}

/// Makes what the kernel says of the alternate stack what the program knows of it.
pub fn hide(stack: &mut libc::stack_t) {
    if is_lent(stack) {
        *stack = NONE;
    }
}

/// In the child of a fork that will not be sampled: takes away what the thread with that word,
/// which forked it, may have lent.
pub fn take_back_of_parent(before: *mut c_void) {
    let is_lent = |now: &libc::stack_t| HandlerStack::of(before).is(now);
    if sys::alternate_stack(None).is_ok_and(|now| is_lent(&now)) {
        let _ = sys::alternate_stack(Some(&NONE));
    }
}

/// A signal's handler of the program's is about to be entered with the arguments that the entry has
/// pushed at `pushed`: gives where they are once its frame is where the program may see it, on its
/// own stack, and makes it say nothing of ours. `this` is the thread's, where it has a live state;
/// `on_alternate` says whether the program wants the handler on its alternate stack, if it has one.
///
/// # Signal safety
/// Loads and stores.
///
/// # Safety
/// The context is that of the frame.
pub unsafe fn off_it(
    this: Option<&HandlerStack>,
    pushed: usize,
    context: *mut c_void,
    signal: c_int,
    on_alternate: bool,
) -> usize {
    // SAFETY: the caller's promise.
    let (stack, sp) = unsafe {
        (
            signal_frame::alternate_stack(context),
            signal_frame::interrupted_sp(context),
        )
    };
    let is_within = |address: usize| {
        (stack.ss_sp as usize)
            .wrapping_add(stack.ss_size)
            .wrapping_sub(address)
            <= stack.ss_size
    };
    // Interrupted there, the kernel stays there whatever the action says.
    let has_entered = stack.ss_size != 0 && is_within(pushed) && !is_within(sp);
    if VISIBLE.load(Relaxed) {
        return pushed;
    }
    // The interrupted stack is full. The kernel could not have entered there either, and this is
    // what it does then.
    let moves = this.map(|this| &this.moves);
    if moves.is_some_and(Cell::get) && is_within(sp) && FAULTS.contains(&signal) {
        program_signal::die(libc::SIGSEGV);
    }
    let is_ours = is_lent(stack);
    if is_ours {
        stack.ss_flags = this.map_or(0, |this| this.flags.get());
        (stack.ss_sp, stack.ss_size) = (ptr::null_mut(), 0);
    }
    if !has_entered || on_alternate && !is_ours {
        return pushed;
    }
    let set = |is: bool| {
        compiler_fence(SeqCst);
        moves.inspect(|moves| moves.set(is));
        compiler_fence(SeqCst);
    };
    set(true);
    // SAFETY: the caller's promise, and the frame is on another stack.
    let moved = unsafe { signal_frame::move_to_interrupted_stack(context, signal) };
    set(false);
    moved
}
