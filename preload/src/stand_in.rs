//! Standing in front of a function of the program without being on the stack while it runs: what is
//! to be done first is done, and the program's function is jumped to with the caller's arguments,
//! as if it had been called itself.

use core::ffi::c_int;
use core::ptr;

/// The arguments of a function as they lie in registers and on the stack: the first six, where it
/// returns to, and the seventh.
#[derive(Debug)]
#[repr(C)]
pub struct Arguments {
    pub first: u64,
    pub second: u64,
    pub third: u64,
    pub fourth: u64,
    pub fifth: u64,
    pub sixth: u64,
    pub caller: u64,
    pub seventh: u64,
}

impl Arguments {
    /// The stack pointer as the function was entered.
    #[inline]
    pub fn sp(&self) -> u64 {
        (&raw const self.caller) as u64
    }
}

/// An argument that is to be kept, loaded for itself: the shim has just stored one by one what the
/// compiler would load two at a time, and such a load waits until both stores are through.
#[inline]
pub fn kept(argument: &u64) -> u64 {
    // SAFETY: a reference.
    unsafe { ptr::from_ref(argument).read_volatile() }
}

/// What is jumped to where the program has no such function.
pub extern "C" fn absent() -> c_int {
    rsunwind::errno::set(libc::ENOSYS);
    -1
}

/// Has `before` look at the arguments of a function that has just been entered, and jumps to where
/// it says, with what it has made of them.
///
/// r10 and r11 are no arguments of a function: zero in them is what [`rsunwind::restart`] wants to
/// find at the system call, in the one for a register that it may need, in the other to tell a call
/// that is made again from one that is about to be made.
#[macro_export]
macro_rules! hand_over {
    () => {
        concat!(
            "push r9\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push r8\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rcx\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rdx\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rsi\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rdi\n",
            ".cfi_adjust_cfa_offset 8\n",
            "mov rdi, rsp\n",
            "sub rsp, 8\n", // 16-byte aligned again
            ".cfi_adjust_cfa_offset 8\n",
            "call {before}\n",
            "add rsp, 8\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop rdi\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop rsi\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop rdx\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop rcx\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop r8\n",
            ".cfi_adjust_cfa_offset -8\n",
            "pop r9\n",
            ".cfi_adjust_cfa_offset -8\n",
            "xor r10d, r10d\n",
            "xor r11d, r11d\n",
            "jmp rax",
        )
    };
}

/// Declares functions that jump to the program's of the same name, after `|arguments| …` has run,
/// in ordinary Rust, and may have changed the arguments, or returned the address of another
/// function. `else` names what to jump to where the program has none.
#[macro_export]
macro_rules! stand_in {
    ($(fn $name:ident = |$arguments:ident| $before:block $(else $absent:path)?;)*) => {
        $(
            const _: () = {
                static REAL: $crate::next::Next = $crate::next::Next::new(
                    // SAFETY: one zero byte, at the end.
                    unsafe { core::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) });

                extern "C" fn before($arguments: &mut $crate::stand_in::Arguments) -> usize {
                    $before
                    let absent = $crate::stand_in::absent as *const () as usize;
                    $(let absent = { let _ = absent; $absent as *const () as usize };)?
                    REAL.address().unwrap_or(absent)
                }

                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C" fn $name() {
                    core::arch::naked_asm!(
                        ".cfi_startproc",
                        "endbr64",
                        $crate::hand_over!(),
                        ".cfi_endproc",
                        before = sym before,
                    )
                }
            };
        )*
    };
}
