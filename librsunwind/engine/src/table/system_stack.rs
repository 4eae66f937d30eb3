//! Go's runtime does some of its work on the thread's own stack: `runtime.systemstack` leaves the
//! goroutine's stack, calls, and goes back. It has no table that would say where the goroutine's
//! stack was, but the instructions behind the call do; they are read and done.
//!
//! ```text
//!   call  *%rdi
//!   mov   %fs:L, %rax               the goroutine of the thread's own stack
//!   mov   T(%rax), %rbx             its thread
//!   mov   G(%rbx), %rax             the goroutine that the thread has left
//!   mov   %rax, %fs:L
//!   mov   S(%rax), %rsp             the caller's return address is on top
//! ```
//!
//! So in Go 1.19, with other distances from version to version; in position-independent programs L
//! is loaded first. Known for x86-64.

use crate::memory::StackMemory;
use crate::registers;

/// The function's code before the call is not longer than this.
const LONGEST: u64 = 128;

/// What the instructions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    local: Local,
    thread: u64,
    left: u64,
    sp: u64,
}

/// Where the thread keeps its goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Local {
    /// That far from the thread's block.
    At(i64),
    /// As far as is said there, counted from the first instruction.
    SaidAt(i64),
}

/// Whether the function goes back from there to the stack of its caller.
pub(super) fn is_way_back(code: &[u8]) -> bool {
    way(code).is_some()
}

fn way(code: &[u8]) -> Option<Way> {
    let signed = |bytes: &[u8; 4]| i64::from(i32::from_le_bytes(*bytes));
    let (first, rest) = code.split_first_chunk::<5>()?;
    let (local, rest) = match first {
        [0x64, 0x48, 0x8b, 0x04, 0x25] => {
            let (at, rest) = rest.split_first_chunk()?;
            (Local::At(signed(at)), rest)
        }
        // mov rel(%rip), %rcx; or what linkers make of it, mov $L, %rcx; then mov %fs:(%rcx), %rax
        [0x48, kind @ 0x8b, 0x0d, ..] | [0x48, kind @ 0xc7, 0xc1, ..] => {
            let (at, rest) = code.get(3..)?.split_first_chunk()?;
            let local = match kind {
                0x8b => Local::SaidAt(signed(at).wrapping_add(7)),
                _ => Local::At(signed(at)),
            };
            (local, rest.strip_prefix(&[0x64, 0x48, 0x8b, 0x01])?)
        }
        _ => return None,
    };
    let (thread, rest) = rest.strip_prefix(&[0x48, 0x8b, 0x58])?.split_first()?;
    let (left, rest) = match rest {
        [0x48, 0x8b, 0x43, left, rest @ ..] if *left < 0x80 => (u32::from(*left), rest),
        [0x48, 0x8b, 0x83, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), rest),
        _ => return None,
    };
    let rest = match rest {
        [0x64, 0x48, 0x89, 0x04, 0x25, _, _, _, _, rest @ ..] => rest,
        [0x64, 0x48, 0x89, 0x01, rest @ ..] => rest,
        _ => return None,
    };
    let sp = rest.strip_prefix(&[0x48, 0x8b, 0x60])?.first()?;
    (*thread < 0x80 && *sp < 0x80 && left < 1 << 16).then_some(Way {
        local,
        thread: u64::from(*thread),
        left: u64::from(left),
        sp: u64::from(*sp),
    })
}

/// Where on the goroutine's stack the return address of the caller is, if all that leads there can
/// be read. `pc` is where the function goes on after its call, `code` what stands there.
///
/// # Signal safety
/// Loads through `memory` only. The calling thread is the one whose stack it is.
pub(super) fn top(pc: u64, code: &[u8], memory: &mut StackMemory) -> Option<u64> {
    let way = way(code)?;
    let distance = match way.local {
        Local::At(distance) => distance,
        Local::SaidAt(place) => memory.load(pc.wrapping_add_signed(place))?.cast_signed(),
    };
    let own = memory.load(registers::thread_block().wrapping_add_signed(distance))?;
    let thread = memory.load(own.wrapping_add(way.thread))?;
    let left = memory.load(thread.wrapping_add(way.left))?;
    memory.load(left.wrapping_add(way.sp))
}

/// Whether the call that returns to `caller` is one of the function that goes on at `pc` after its
/// own.
pub(super) fn is_called(caller: u64, pc: u64, memory: &mut StackMemory) -> bool {
    let Some(before) = memory.load(caller.wrapping_sub(8)) else {
        return false;
    };
    let [_, _, _, opcode, distance @ ..] = before.to_le_bytes();
    let start = caller.wrapping_add_signed(i32::from_le_bytes(distance).into());
    opcode == 0xe8 && pc.wrapping_sub(start) < LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_of_known_versions_are_read() {
        let found = |local| {
            Some(Way {
                local,
                thread: 0x30,
                left: 0xc0,
                sp: 0x38,
            })
        };
        // Go 1.19, linked at a fixed address.
        let fixed = b"\x64\x48\x8b\x04\x25\xf8\xff\xff\xff\x48\x8b\x58\x30\x48\x8b\x83\xc0\0\0\0\x64\x48\x89\x04\x25\xf8\xff\xff\xff\x48\x8b\x60\x38";
        assert_eq!(way(fixed), found(Local::At(-8)));
        // Position-independent, as it is and after the linker has had a look at it.
        let free = b"\x48\x8b\x0d\x01\x02\0\0\x64\x48\x8b\x01\x48\x8b\x58\x30\x48\x8b\x83\xc0\0\0\0\x64\x48\x89\x01\x48\x8b\x60\x38";
        assert_eq!(way(free), found(Local::SaidAt(0x208)));
        let mut relaxed = *free;
        relaxed[..7].copy_from_slice(b"\x48\xc7\xc1\xf8\xff\xff\xff");
        assert_eq!(way(&relaxed), found(Local::At(-8)));
        for length in 0..fixed.len() {
            assert!(!is_way_back(&fixed[..length]));
        }
        assert!(!is_way_back(&[0x90; 40]));
    }
}
