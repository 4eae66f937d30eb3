//! Where execution begins, in a C library without tables (musl's): there is no caller to be found,
//! and nothing is missing.
//!
//! ```text
//!   call *%rbx          main(argc, argv, envp)         call *…             a thread's function
//!   mov  %eax, %edi                                    mov  %rax, %rdi
//!   call exit                                          call pthread_exit
//! ```
//!
//! Known for x86-64.

use crate::memory::StackMemory;
use crate::registers::RETURN_ADDRESS_ON_STACK;

/// Whether execution begins in the function to which a call returns: it gives the result of the
/// call, made through a pointer, on to a function, as only those do that then end the program or
/// the thread. `before` and `behind` are the code around the pc.
#[must_use]
pub fn is_outset(before: [u8; 8], behind: [u8; 8]) -> bool {
    let is_indirect = match before {
        // call *reg, call *(reg); with a distance of one byte
        [.., 0xff, how] => how & 0xf8 == 0xd0 || how & 0xf8 == 0x10,
        [.., 0xff, how, _] => how & 0xf8 == 0x50,
        _ => false,
    };
    // mov %eax, %edi; mov %rax, %rdi; movslq %eax, %rdi; then call
    let gives_result = matches!(
        behind,
        [0x89, 0xc7, 0xe8, ..] | [0x48, 0x89, 0xc7, 0xe8, ..] | [0x48, 0x63, 0xf8, 0xe8, ..]
    );
    RETURN_ADDRESS_ON_STACK && is_indirect && gives_result
}

/// [`is_outset`] of a pc.
///
/// # Signal safety
/// Loads through `memory` only: the code around the pc.
pub(crate) fn is_at(pc: u64, memory: &mut StackMemory) -> bool {
    let before = memory.load(pc.wrapping_sub(8)).map(u64::to_le_bytes);
    let behind = memory.load(pc).map(u64::to_le_bytes);
    matches!((before, behind), (Some(before), Some(behind)) if is_outset(before, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_of_musl_are_known_and_others_are_not() {
        let main = *b"\x89\xea\x4c\x89\xe6\x90\xff\xd3";
        let thread = *b"\x5b\x48\x89\x43\x10\x90\xff\x13";
        let exit = *b"\x89\xc7\xe8\x01\x02\x03\x04\x66";
        let pthread_exit = *b"\x48\x89\xc7\xe8\x01\x02\x03\x04";
        let c11 = *b"\x48\x63\xf8\xe8\x01\x02\x03\x04";
        for (before, behind) in [(main, exit), (thread, pthread_exit), (thread, c11)] {
            assert_eq!(is_outset(before, behind), RETURN_ADDRESS_ON_STACK);
        }
        let direct = *b"\x90\x90\x90\xe8\x01\x02\x03\x04";
        let kept = *b"\x89\xc3\xe8\x01\x02\x03\x04\x66";
        assert!(!is_outset(direct, exit) && !is_outset(main, kept));
    }
}
