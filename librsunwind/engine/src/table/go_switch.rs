//! Go calls C on the thread's own stack: `runtime.asmcgocall` leaves the goroutine's stack, and has
//! no table that would say where that was. Its own code does, in the instructions behind the call,
//! which go back there; they are read and done.
//!
//! ```text
//!   call  *%rax                     <- into C
//!   mov   G(%rsp), %rdi             the goroutine             or, on the thread's stack already:
//!   mov   8(%rdi), %rsi             the end of its stack        mov   D(%rsp), %rsi
//!   sub   D(%rsp), %rsi             minus the depth             mov   %rsi, %rsp
//!   mov   %rdi, %fs:…
//!   mov   %rsi, %rsp                the caller's return address is on top
//! ```
//!
//! So since Go 1.5, with other distances from version to version; in position-independent programs
//! a load comes first. Known for x86-64.

use super::frame_pointer::{CODE, LARGEST_FRAME, follows_call};
use super::system_stack;
use crate::cursor::Cursor;
use crate::memory::StackMemory;
use crate::registers::{RETURN_ADDRESS_ON_STACK, strip};
use crate::rule::UnwindRule;
use crate::wire::sample::StopReason;

/// A goroutine's stack is not larger than this: Go's own limit is 1 GB.
const LARGEST_STACK: u64 = 1 << 30;
/// In a goroutine, where the end of its stack stands.
const STACK_END: u64 = 8;
/// In place of the goroutine's distance: there is none, and the stack pointer itself was saved.
const NO_GOROUTINE: u8 = 0xff;
/// In the same place: Go itself went to the thread's stack ([`system_stack`]).
const SYSTEM_STACK: u8 = 0xfe;
/// Bytes of code that are read.
const CODE_LENGTH: usize = 40;

/// The rule of a pc to which C code returns, if what stands there goes back to the stack of the
/// caller.
///
/// # Signal safety
/// Loads through `memory` only: the code at the pc.
pub(crate) fn rule(pc: u64, memory: &mut StackMemory) -> Option<UnwindRule> {
    if !RETURN_ADDRESS_ON_STACK {
        return None;
    }
    let code = code_at(pc, memory)?;
    if system_stack::is_way_back(&code) {
        return Some(UnwindRule::go_switch(SYSTEM_STACK, 0));
    }
    let (goroutine, depth) = distances(&code)?;
    Some(UnwindRule::go_switch(goroutine, depth))
}

fn code_at(pc: u64, memory: &mut StackMemory) -> Option<[u8; CODE_LENGTH]> {
    let mut code = [0; CODE_LENGTH];
    for (offset, word) in (0u64..).step_by(8).zip(code.as_chunks_mut().0) {
        *word = memory.load(pc.wrapping_add(offset))?.to_le_bytes();
    }
    Some(code)
}

/// The two distances from the stack pointer that the instructions have.
fn distances(code: &[u8]) -> Option<(u8, u8)> {
    // mov rel(%rip), %rcx; or what linkers make of it, mov $offset, %rcx
    let (code, thread_local) = match code {
        [0x48, 0x8b, 0x0d, _, _, _, _, rest @ ..] | [0x48, 0xc7, 0xc1, _, _, _, _, rest @ ..] => {
            (rest, &[0x64, 0x48, 0x89, 0x39][..])
        }
        _ => (
            code,
            &[0x64, 0x48, 0x89, 0x3c, 0x25, 0xf8, 0xff, 0xff, 0xff][..],
        ),
    };
    let (goroutine, code) = match code {
        // mov D(%rsp), %rsi; mov %rsi, %rsp
        [0x48, 0x8b, 0x74, 0x24, depth, 0x48, 0x89, 0xf4, ..] if *depth < 0x80 => {
            return Some((NO_GOROUTINE, *depth));
        }
        [0x48, 0x8b, 0x34, 0x24, 0x48, 0x89, 0xf4, ..] => return Some((NO_GOROUTINE, 0)),
        // mov G(%rsp), %rdi; mov 8(%rdi), %rsi
        [
            0x48,
            0x8b,
            0x7c,
            0x24,
            goroutine,
            0x48,
            0x8b,
            0x77,
            0x08,
            rest @ ..,
        ] => (*goroutine, rest),
        [0x48, 0x8b, 0x3c, 0x24, 0x48, 0x8b, 0x77, 0x08, rest @ ..] => (0, rest),
        _ => return None,
    };
    // sub D(%rsp), %rsi
    let (depth, code) = match code {
        [0x48, 0x2b, 0x74, 0x24, depth, rest @ ..] => (*depth, rest),
        [0x48, 0x2b, 0x34, 0x24, rest @ ..] => (0, rest),
        _ => return None,
    };
    let last = code.strip_prefix(thread_local)?;
    let fits = goroutine < 0x80 && depth < 0x80 && last.starts_with(&[0x48, 0x89, 0xf4]);
    fits.then_some((goroutine, depth))
}

/// Takes a cursor to the Go function that called C, or on the thread's stack.
///
/// # Errors
/// [`StopReason::UnreadableStack`]; [`StopReason::NoRow`] if what was saved is no stack that a call
/// was made on.
///
/// # Signal safety
/// Loads through `memory` only.
pub(crate) fn step(
    rule: UnwindRule,
    cursor: &mut Cursor,
    memory: &mut StackMemory,
) -> Result<(), StopReason> {
    let [goroutine, depth, ..] = rule.index().to_le_bytes();
    let (top, fits) = match goroutine {
        SYSTEM_STACK => {
            let at = cursor.pc();
            let top = code_at(at, memory).and_then(|code| system_stack::top(at, &code, memory));
            (top.ok_or(StopReason::UnreadableStack)?, true)
        }
        _ => saved(goroutine, depth, cursor.sp(), memory).ok_or(StopReason::UnreadableStack)?,
    };
    let pc = memory.load(top).ok_or(StopReason::UnreadableStack)?;
    let is_called = match goroutine {
        SYSTEM_STACK => system_stack::is_called(pc, cursor.pc(), memory),
        _ => follows_call(pc, memory),
    };
    if !fits || top & 7 != 0 || !CODE.contains(&pc) || !is_called {
        return Err(StopReason::NoRow);
    }
    let caller_sp = top.wrapping_add(8);
    let valid = Cursor::forget_all_but_frame(cursor.valid());
    cursor.become_caller(strip(pc), caller_sp, &cursor.slots(), valid);
    memory.enter(caller_sp);
    Ok(())
}

/// Where the return address stands that was on top when C's stack was entered, by what is on that
/// at `sp`, and whether it can be.
fn saved(goroutine: u8, depth: u8, sp: u64, memory: &mut StackMemory) -> Option<(u64, bool)> {
    let saved = memory.load(sp.wrapping_add(u64::from(depth)))?;
    if goroutine == NO_GOROUTINE {
        return Some((saved, saved.wrapping_sub(sp) < LARGEST_FRAME));
    }
    let goroutine = memory.load(sp.wrapping_add(u64::from(goroutine)))?;
    let end = memory.load(goroutine.wrapping_add(STACK_END))?;
    Some((end.wrapping_sub(saved), saved < LARGEST_STACK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_of_known_versions_are_read() {
        // Go 1.5 to 1.2x, linked at a fixed address.
        let fixed = b"\x48\x8b\x7c\x24\x30\x48\x8b\x77\x08\x48\x2b\x74\x24\x28\x64\x48\x89\x3c\x25\xf8\xff\xff\xff\x48\x89\xf4\x89\x44";
        assert_eq!(distances(fixed), Some((48, 40)));
        // Position-independent.
        let free = b"\x48\x8b\x0d\x01\x02\x03\x04\x48\x8b\x7c\x24\x30\x48\x8b\x77\x08\x48\x2b\x74\x24\x28\x64\x48\x89\x39\x48\x89\xf4";
        assert_eq!(distances(free), Some((48, 40)));
        let mut relaxed = *free;
        relaxed[..7].copy_from_slice(b"\x48\xc7\xc1\xf8\xff\xff\xff");
        assert_eq!(distances(&relaxed), Some((48, 40)));
        // A smaller frame.
        let small = b"\x48\x8b\x7c\x24\x08\x48\x8b\x77\x08\x48\x2b\x34\x24\x64\x48\x89\x3c\x25\xf8\xff\xff\xff\x48\x89\xf4";
        assert_eq!(distances(small), Some((8, 0)));
        let own_stack = b"\x48\x8b\x74\x24\x28\x48\x89\xf4\x89\x44\x24\x18\xc3";
        assert_eq!(distances(own_stack), Some((NO_GOROUTINE, 40)));
        assert_eq!(distances(&[0x90; 40]), None);
        for length in 0..fixed.len() - 2 {
            assert_eq!(distances(&fixed[..length]), None);
        }
    }
}
