//! The program's handlers of other signals. Each is entered through a stub of its own, which lets our signal in first: a call that holds it
//! back would otherwise hold it back in the handler too, with all that is called, started and replaced from there. The kernel is given the
//! stub, so that an action stays one thing; the stub's place says which handler it stands for.
//!
//! A stub leaves nothing on the stack: the handler sees what the kernel gave it, and may leave as it likes. When it returns, the kernel
//! restores the mask that the call had. On an alternate stack ([`on_alternate_stack`]) our signal is let in only where it fits.
//!
//! Not here: how actions are set and read back ([`super::signals`]).

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use rsunwind::thread::ThreadState;
use rsunwind::trigger::SIGNAL;
use rsunwind::{arch, sys, weak_address};

/// Handlers that have a stub; others are set as they are.
const STUBS: usize = 256;
/// Bytes of a stub.
const STUB: usize = 16;

/// What each stub stands for, once and for all.
static HANDLERS: [AtomicUsize; STUBS] = [const { AtomicUsize::new(0) }; STUBS];

/// The first of the signals that libc keeps for itself, and the last one.
const OF_LIBC: core::ops::RangeInclusive<c_int> = 32..=33;

/// The frame of a signal, at most, as far as it is known, bytes.
static SIGNAL_FRAME: AtomicUsize = AtomicUsize::new(4096);
/// What our handler's entry needs beside that, before it goes over to a stack of its own.
const ENTRY: usize = 512;

/// Whether an action calls a function.
const fn is_function(handler: usize) -> bool {
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

/// Takes over the handlers that were set before us, by constructors of libraries.
pub fn adopt() {
    const AT_MINSIGSTKSZ: u64 = 51;
    let getauxval = weak_address!("getauxval");
    if getauxval != 0 {
        // SAFETY: the host's function.
        let size = unsafe {
            core::mem::transmute::<usize, extern "C" fn(u64) -> u64>(getauxval)(AT_MINSIGSTKSZ)
        };
        if size != 0 {
            SIGNAL_FRAME.store(size as usize, Relaxed);
        }
    }
    for signal in (1..=64).filter(|signal| *signal != SIGNAL && !OF_LIBC.contains(signal)) {
        adopt_one(signal);
    }
}

/// libc's handler by which threads are cancelled, which is there from the first time on: it does not return, and what the thread does then is
/// to be sampled.
pub fn adopt_cancellation() {
    adopt_one(*OF_LIBC.start());
}

fn adopt_one(signal: c_int) {
    if let Ok(action) = sys::signal_action(signal, None) {
        let handler = hide(action.handler);
        if handler != action.handler {
            let mask = match on_alternate_stack(signal, action.flags) {
                true => action.mask | sys::bit(SIGNAL),
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

/// Whether a signal's handler may run on an alternate stack, which may be too small for another frame: our signal is in the mask of such
/// actions, and its stub looks. Notes it.
pub fn on_alternate_stack(signal: c_int, flags: u64) -> bool {
    let is = flags & libc::SA_ONSTACK as u64 != 0;
    if is && (1..=64).contains(&signal) {
        // Never taken back: a look too many does no harm.
        ALTERNATE.fetch_or(sys::bit(signal), Relaxed);
    }
    is
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
        "xchg rdi, rax",
        "mov rsi, rdx",
        "mov edx, eax",
        "call {prepare}",
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

extern "C" fn prepare(stub: usize, context: *const c_void, signal: c_int) -> usize {
    if let Some(this) = ThreadState::current_unchecked() {
        this.handled = this.handled.wrapping_add(1);
        let by_mask = ALTERNATE.load(Relaxed) & sys::bit(signal) != 0;
        // SAFETY: the kernel gives a ucontext to all handlers.
        if (this.shielded != 0 || by_mask) && unsafe { may_be_let_in(this, context) } {
            sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(SIGNAL));
        }
    }
    behind(stub).unwrap_or(0)
}

/// # Safety
/// The context is the kernel's.
unsafe fn may_be_let_in(this: &ThreadState, context: *const c_void) -> bool {
    /// `uc_stack` in the kernel's `struct ucontext`: the lowest address, flags, size.
    const STACK: usize = 16;
    const SIZE: usize = 32;
    // SAFETY: the caller's promise.
    let word = |offset: usize| unsafe { context.byte_add(offset).cast::<usize>().read() };
    // What is blocked without our doing (in the program's own handler for our signal) stays so.
    let was_blocked = word(arch::CONTEXT_MASK) as u64 & sys::bit(SIGNAL) != 0;
    let room = (arch::stack_pointer() as usize).wrapping_sub(word(STACK));
    let is_alternate = room < word(SIZE);
    let fits = room > SIGNAL_FRAME.load(Relaxed).wrapping_add(ENTRY);
    (this.shielded != 0 || !was_blocked) && (fits || !is_alternate)
}
