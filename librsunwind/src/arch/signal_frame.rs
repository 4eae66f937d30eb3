//! The frame that the kernel makes for a signal's handler on x86-64: what is in it, how large it
//! is, and how it is moved to another stack.
//!
//! From its lowest address: where the handler returns to, the `ucontext`, the `siginfo`; somewhere
//! above, aligned to 64 bytes, the state of the processor's vector units. (Linux: `struct
//! rt_sigframe`, `get_sigframe`, both of them part of the ABI.)
//!
//! # Safety
//! The context is one that the kernel has made for a handler that has not returned.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::ptr;

/// Below the interrupted stack pointer belongs to the interrupted function.
const RED_ZONE: usize = 128;
/// From the `ucontext` to the `siginfo`.
const INFORMATION: usize = 304;
/// Return address, `ucontext`, `siginfo`.
const HEAD: usize = 8 + INFORMATION + 128;
/// `uc_stack`, `uc_mcontext.rsp`, `uc_mcontext.fpstate`.
const STACK: usize = 16;
const SP: usize = 160;
const STATE: usize = 224;

/// The alternate stack as it was when the signal came, and as it will be when the handler returns.
///
/// # Safety
/// See the module; the reference goes before the handler returns.
pub unsafe fn alternate_stack(context: *mut c_void) -> &'static mut libc::stack_t {
    // SAFETY: the caller's promise.
    unsafe { &mut *context.byte_add(STACK).cast::<libc::stack_t>() }
}

/// The stack pointer of the code that was interrupted.
///
/// # Safety
/// See the module.
pub unsafe fn interrupted_sp(context: *const c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { context.byte_add(SP).cast::<usize>().read() }
}

/// The state of the vector units, and its size in bytes, with what the kernel keeps behind it.
///
/// # Safety
/// See the module.
unsafe fn state(context: *const c_void) -> (*const u8, usize) {
    /// As `fxsave` has it; what the kernel says of the rest in the room that leaves.
    const LEGACY: usize = 512;
    const RESERVED: usize = 464;
    const EXTENDED: u32 = 0x4650_5853;
    // SAFETY: the caller's promise; the state has room for those two words at least.
    unsafe {
        let state = context.byte_add(STATE).cast::<*const u8>().read();
        if state.is_null() {
            return (state, 0);
        }
        match state.add(RESERVED).cast::<[u32; 2]>().read_unaligned() {
            [EXTENDED, size] => (state, size as usize),
            _ => (state, LEGACY),
        }
    }
}

/// What a frame takes of its stack like the one that holds this context, bytes. Not
/// `AT_MINSIGSTKSZ`, which is what the processor could need at most: three times as much where it
/// has AMX, which the kernel saves only for processes that have asked for it.
///
/// # Safety
/// See the module.
pub unsafe fn size(context: *const c_void) -> usize {
    /// Red zone, head, and what alignment takes.
    const REST: usize = 704;
    // SAFETY: the caller's promise.
    let (_, size) = unsafe { state(context) };
    REST.wrapping_add(size)
}

/// The arguments of a handler as the entries of ours leave them on the stack, to take them from
/// there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Pushed {
    /// Its third argument.
    pub context: *mut c_void,
    /// Its second one.
    pub information: *mut c_void,
    /// Its first one.
    pub signal: usize,
}

/// Moves the frame to where the kernel would have put it had there been no alternate stack, and the
/// handler's arguments below it; gives the stack pointer there, at a [`Pushed`].
///
/// # Signal safety
/// Loads and stores. Where that stack is full the stores fault, as those of the kernel would have.
///
/// # Safety
/// See the module; the frame does not lie on the interrupted stack, and nobody has the old one's
/// addresses.
pub unsafe fn move_to_interrupted_stack(context: *mut c_void, signal: c_int) -> usize {
    // SAFETY: the caller's promise.
    let (sp, (old_state, size)) = unsafe { (interrupted_sp(context), state(context)) };
    let new_state = sp.wrapping_sub(RED_ZONE).wrapping_sub(size) & !63;
    let frame = (new_state.wrapping_sub(HEAD) & !15).wrapping_sub(8);
    let new = frame.wrapping_add(8) as *mut c_void;
    let pushed = frame.wrapping_sub(size_of::<Pushed>());
    let arguments = Pushed {
        context: new,
        information: new.wrapping_byte_add(INFORMATION),
        signal: signal as usize,
    };
    // SAFETY: the kernel's frame, and free stack below the interrupted function's.
    unsafe {
        let old = context.byte_sub(8).cast::<u8>();
        ptr::copy_nonoverlapping(old, frame as *mut u8, HEAD);
        if size != 0 {
            ptr::copy_nonoverlapping(old_state, new_state as *mut u8, size);
            new.byte_add(STATE).cast::<usize>().write(new_state);
        }
        (pushed as *mut Pushed).write(arguments);
    }
    pushed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Stack([u8; 32 * 1024]);

    /// Frames of processors without and with vector units, and with AMX in use.
    const STATES: [usize; 4] = [0, 512, 2696, 11_012];

    /// A frame as the kernel makes it at the top of one stack, for code that was interrupted on
    /// another.
    fn frame(on: &mut Stack, size: usize, sp: usize) -> *mut c_void {
        let base = on.0.as_mut_ptr();
        on.0.iter_mut()
            .enumerate()
            .for_each(|(index, byte)| *byte = (index * 7) as u8);
        let top = on.0.len();
        let state = (top - size) & !63;
        let context = (state - HEAD) & !15;
        // SAFETY: within the stack.
        let word = |offset: usize, value: usize| unsafe {
            base.add(context + offset).cast::<usize>().write(value)
        };
        word(SP, sp);
        word(STATE, if size == 0 { 0 } else { base as usize + state });
        if size != 0 {
            let said = if size > 512 {
                [0x4650_5853, size as u32]
            } else {
                [0; 2]
            };
            // SAFETY: within the stack.
            unsafe { base.add(state + 464).cast::<[u32; 2]>().write(said) };
        }
        base.wrapping_add(context).cast()
    }

    #[test]
    fn a_frame_is_as_large_as_it_says_whatever_the_processor_could_need() {
        for size in STATES {
            let mut stack = Stack([0; _]);
            let context = frame(&mut stack, size, 0);
            // SAFETY: a frame like the kernel's.
            assert_eq!(unsafe { super::size(context) }, 704 + size);
        }
    }

    #[test]
    fn a_frame_is_moved_to_where_the_kernel_would_have_put_it() {
        for size in STATES {
            for misaligned in [0, 8, 24, 56] {
                let (mut from, mut to) = (Stack([0; _]), Stack([0; _]));
                let sp = to.0.as_mut_ptr() as usize + to.0.len() - misaligned;
                let old = frame(&mut from, size, sp);
                // SAFETY: a frame like the kernel's, and room for it.
                let pushed = unsafe { move_to_interrupted_stack(old, 10) };
                // SAFETY: within the stack.
                let Pushed {
                    context,
                    information,
                    signal,
                } = unsafe { (pushed as *const Pushed).read() };
                assert_eq!((signal, information), (10, context.wrapping_byte_add(304)));
                assert_eq!(
                    context as usize % 16,
                    0,
                    "so that the handler is entered with rsp = 8 modulo 16"
                );
                assert_eq!(pushed, context as usize - 8 - 24);
                // SAFETY: both frames are there.
                unsafe {
                    assert!(context as usize + 432 + size + 128 <= sp);
                    assert!(context as usize + 432 + size + 128 + 64 + 32 > sp);
                    let (old_at, old_size) = state(old);
                    let (new_at, new_size) = state(context);
                    assert_eq!((old_size, new_size), (size, size));
                    assert_eq!(new_at as usize % 64, 0);
                    let bytes = |at: *const u8, size| core::slice::from_raw_parts(at, size);
                    if size != 0 {
                        assert_eq!(bytes(old_at, size), bytes(new_at, size));
                        context
                            .byte_add(STATE)
                            .cast::<usize>()
                            .write(old_at as usize);
                    }
                    let head = |context: *mut c_void| bytes(context.byte_sub(8).cast(), HEAD);
                    assert_eq!(head(old), head(context));
                }
            }
        }
    }
}
