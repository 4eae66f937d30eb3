//! The program's handlers of other signals. Each is entered through a stub of its own, which sees
//! to it that the signal ends the call that it came in, whatever our handler has just made of it
//! ([`rsunwind::restart`]). The kernel is given the stub, so that an action stays one thing; the
//! stub's place says which handler it stands for.
//!
//! A stub leaves nothing on the stack: the handler sees what the kernel gave it, where it would
//! have without us ([`rsunwind::thread::handler_stack`]), and may leave as it likes. On an
//! alternate stack of the program's ([`on_alternate_stack`]) our signal is let in only where it
//! fits.
//!
//! Not here: how actions are set and read back ([`super::signals`]).

use super::sets;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use rsunwind::arch::signal_frame::{self, Pushed};
use rsunwind::signal;
use rsunwind::thread::{ThreadState, handler_stack};
use rsunwind::{arch, sys, weak_address};

/// Handlers that have a stub; others are set as they are.
const STUBS: usize = 256;
/// Bytes of a stub.
const STUB: usize = 16;

/// What each stub stands for, once and for all.
static HANDLERS: [AtomicUsize; STUBS] = [const { AtomicUsize::new(0) }; STUBS];

/// The first of the signals that libc keeps for itself, and the last one.
const OF_LIBC: core::ops::RangeInclusive<c_int> = 32..=33;

/// What our handler's entry needs beside the kernel's frame, before it goes over to a stack of its
/// own.
const ENTRY: usize = 512;

/// Whether an action calls a function.
pub const fn is_function(handler: usize) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN) && handler != usize::MAX
}

fn first_stub() -> usize {
    stubs as *const () as usize
}

/// The handler that a stub stands for, from an address in it.
fn behind(address: usize) -> Option<usize> {
    let place = address.checked_sub(first_stub())?;
    let handler = HANDLERS.get(place.checked_div(STUB)?)?.load(Relaxed);
    (handler != 0).then_some(handler)
}

/// What to set for a handler that the program sets.
pub fn hide(handler: usize) -> usize {
    if !is_function(handler) || behind(handler).is_some() {
        return handler;
    }
    for (index, place) in HANDLERS.iter().enumerate() {
        let known = match place.compare_exchange(0, handler, Relaxed, Relaxed) {
            Ok(_) => handler,
            Err(known) => known,
        };
        if known == handler {
            return first_stub().wrapping_add(index.wrapping_mul(STUB));
        }
    }
    handler
}

/// What the program knows of a handler that is set.
pub fn shown(handler: usize) -> usize {
    match handler.checked_sub(first_stub()) {
        Some(place) if place.is_multiple_of(STUB) => behind(handler).unwrap_or(handler),
        _ => handler,
    }
}

/// Takes over the handlers that were set before us, by constructors of libraries: `caught` has the
/// signals that may have some.
pub fn adopt(caught: u64) {
    let is_caught = |signal: &c_int| caught & sys::bit(*signal) != 0;
    let is_ours = |signal: &c_int| signal::is_taken(*signal) || OF_LIBC.contains(signal);
    for signal in (1..=64).filter(|signal| is_caught(signal) && !is_ours(signal)) {
        adopt_one(signal);
    }
}

/// libc's handler by which threads are cancelled, which is there from the first time on: it does
/// not return, and what the thread does then is to be sampled.
pub fn adopt_cancellation() {
    adopt_one(match weak_address!("gnu_get_libc_version") {
        0 => *OF_LIBC.end(), // musl's
        _ => *OF_LIBC.start(),
    });
}

fn adopt_one(signal: c_int) {
    if let Ok(action) = sys::signal_action(signal, None) {
        note_flags(signal, action.flags);
        if is_function(action.handler) && is_like_go(action.flags, action.mask) {
            handler_stack::leave_visible();
        }
        sets::note_mask(signal, action.mask);
        let handler = hide(action.handler);
        if handler != action.handler {
            let mask = match on_alternate_stack(signal, action.flags) {
                true => action.mask | sys::bit(signal::current()),
                false => action.mask,
            };
            let action = sys::KernelAction {
                handler,
                mask,
                ..action
            };
            let _ = sys::signal_action(signal, Some(&action));
        }
    }
}

/// Signals whose handlers may run on an alternate stack.
static ALTERNATE: AtomicU64 = AtomicU64::new(0);

/// Whether a signal's handler may run on an alternate stack, which may be too small for another
/// frame: our signal is in the mask of such actions, and its stub looks. Notes it.
pub fn on_alternate_stack(signal: c_int, flags: u64) -> bool {
    let is = flags & libc::SA_ONSTACK as u64 != 0;
    if is && (1..=64).contains(&signal) {
        // Never taken back: a look too many does no harm.
        ALTERNATE.fetch_or(sys::bit(signal), Relaxed);
    }
    is
}

/// Whether an action is like those of Go's, which sets alternate stacks by system calls of its own,
/// and finds out what the kernel has. A program of another kind that sets the same has its handlers
/// where no stack is set on ours, of 80 KB.
pub fn is_like_go(flags: u64, mask: u64) -> bool {
    const FLAGS: u64 = (libc::SA_ONSTACK | libc::SA_SIGINFO | libc::SA_RESTART) as u64;
    // The kernel takes these out of all masks, and libc those.
    let never = sys::bit(libc::SIGKILL) | sys::bit(libc::SIGSTOP);
    let of_libc = OF_LIBC.fold(0, |mask, signal| mask | sys::bit(signal));
    flags & FLAGS == FLAGS && mask | never | of_libc == !0
}

/// Signals whose actions say `SA_RESTART`.
static RESTARTING: AtomicU64 = AtomicU64::new(0);

/// Notes what a signal's action says, which has been set.
pub fn note_flags(signal: c_int, flags: u64) {
    let bit = sys::bit(signal);
    match flags & libc::SA_RESTART as u64 {
        _ if !(1..=64).contains(&signal) => 0,
        0 => RESTARTING.fetch_and(!bit, Relaxed),
        _ => RESTARTING.fetch_or(bit, Relaxed),
    };
}

/// The same where libc has set it.
pub fn learn_flags(signal: c_int) {
    if let Ok(action) = sys::signal_action(signal, None) {
        note_flags(signal, action.flags);
    }
}

/// For the kernel to call, as handlers: the place of the stub is what its common part is told.
#[unsafe(naked)]
unsafe extern "C" fn stubs(signal: c_int, info: *mut c_void, context: *mut c_void) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        ".balign 16",
        ".rept {stubs}",
        "endbr64",
        "lea rax, [rip]",
        "jmp 2f",
        ".balign 16",
        ".endr",
        "2:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx", // 16-byte aligned again: the kernel enters with rsp = 8 modulo 16
        ".cfi_adjust_cfa_offset 8",
        "mov rcx, rsp",
        "xchg rdi, rax",
        "mov rsi, rdx",
        "mov edx, eax",
        "call {prepare}",
        "mov rsp, rdx",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3:",
        "ret",
        ".cfi_endproc",
        stubs = const STUBS,
        prepare = sym prepare,
    )
}

/// How the program's handler is entered.
#[repr(C)]
struct Way {
    handler: usize,
    /// Where its arguments are on the stack that it is to run on.
    sp: usize,
}

extern "C" fn prepare(stub: usize, context: *mut c_void, signal: c_int, pushed: usize) -> Way {
    let this = ThreadState::current_unchecked();
    let stack = this.map(|this| &this.handler_stack);
    // SAFETY: (all) the kernel gives a ucontext to all handlers. An action that wants no alternate
    // stack has none.
    let sp = unsafe { handler_stack::off_it(stack, pushed, context, signal, true) };
    // SAFETY: there are the handler's arguments.
    let context = unsafe { (*(sp as *const Pushed)).context };
    if let Some(this) = this {
        let restarts = || RESTARTING.load(Relaxed) & sys::bit(signal) != 0;
        // SAFETY: as above.
        let by_call = unsafe { this.calls.before_theirs(context, restarts) };
        let by_mask = ALTERNATE.load(Relaxed) & sys::bit(signal) != 0;
        // SAFETY: as above.
        if (by_mask || by_call) && unsafe { may_be_let_in(this.signal(), context) } {
            sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(this.signal()));
        }
    }
    Way {
        handler: behind(stub).unwrap_or(0),
        sp,
    }
}

/// # Safety
/// The context is the kernel's.
unsafe fn may_be_let_in(ours: c_int, context: *const c_void) -> bool {
    /// `uc_stack` in the kernel's `struct ucontext`: the lowest address, flags, size.
    const STACK: usize = 16;
    const SIZE: usize = 32;
    // SAFETY: the caller's promise.
    let word = |offset: usize| unsafe { context.byte_add(offset).cast::<usize>().read() };
    // What is blocked without our doing (in the program's own handler for our signal) stays so.
    let was_blocked = word(arch::CONTEXT_MASK) as u64 & sys::bit(ours) != 0;
    let room = (arch::stack_pointer() as usize).wrapping_sub(word(STACK));
    let is_alternate = room < word(SIZE);
    // SAFETY: the caller's promise.
    let frame = unsafe { signal_frame::size(context) };
    let fits = room > frame.wrapping_add(ENTRY);
    !was_blocked && (fits || !is_alternate)
}
