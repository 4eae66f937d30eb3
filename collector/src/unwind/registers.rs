//! What differs between architectures: which registers the kernel hands over, and what the frame of
//! a signal looks like.

pub(crate) use imp::{
    Registers, STACK_POINTER, USER_REGISTERS, interrupted, is_signal_return, resumed, waits_on,
};

use framehop::{CacheNative, MayAllocateDuringUnwind, UnwinderNative};
use std::sync::Arc;

/// Bytes of a section, shared by all processes that have the file mapped.
pub(crate) type Bytes = Arc<[u8]>;
/// framehop for the architecture of this build.
pub(crate) type Unwinder = UnwinderNative<Bytes, MayAllocateDuringUnwind>;
/// Its cache of rules.
pub(crate) type Cache = CacheNative<MayAllocateDuringUnwind>;

#[cfg(target_arch = "x86_64")]
mod imp {
    use framehop::x86_64::UnwindRegsX86_64;
    use linux_perf_event_reader::Regs;

    /// Registers under which framehop walks.
    pub type Registers = UnwindRegsX86_64;
    const CX: u64 = 2;
    const SI: u64 = 4;
    const DI: u64 = 5;
    const BP: u64 = 6;
    const SP: u64 = 7;
    const IP: u64 = 8;
    /// Number of the stack pointer in a sample.
    pub const STACK_POINTER: u64 = SP;
    /// `sample_regs_user`, as numbered in the kernel's `asm/perf_regs.h`.
    pub const USER_REGISTERS: u64 = 1 << CX | 1 << SI | 1 << DI | 1 << BP | 1 << SP | 1 << IP;

    /// Where the thread stood in user mode.
    pub fn interrupted(sample: &Regs<'_>) -> Option<(u64, Registers)> {
        let (ip, sp, bp) = (sample.get(IP)?, sample.get(SP)?, sample.get(BP)?);
        Some((ip, resumed(ip, sp, bp)))
    }

    /// The word that the thread waits on, if it is in the kernel for that: `futex(word, FUTEX_WAIT
    /// or FUTEX_WAIT_BITSET, …)`. A system call leaves the pc behind it in rcx.
    pub fn waits_on(sample: &Regs<'_>) -> Option<u64> {
        const WAIT: u64 = 0;
        const WAIT_BITSET: u64 = 9;
        let is_call = sample.get(CX)? == sample.get(IP)?;
        let command = sample.get(SI)? & 0x7f;
        let waits = is_call && matches!(command, WAIT | WAIT_BITSET);
        waits.then(|| sample.get(DI)).flatten()
    }

    /// The registers of code that a signal interrupted.
    pub fn resumed(ip: u64, sp: u64, bp: u64) -> Registers {
        Registers::new(ip, sp, bp)
    }

    /// Whether that is the code that returns from a signal handler (`mov $SYS_rt_sigreturn, %rax;
    /// syscall`), which C libraries do not all describe in their tables; then, where the registers
    /// of the interrupted code lie above the stack pointer there: pc, sp, bp.
    pub fn is_signal_return(code: &[u8]) -> Option<[u64; 3]> {
        const RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
        // struct ucontext of the kernel: flags, link, stack (40 bytes), then r8 … r15, rdi, rsi,
        // rbp, rbx, rdx, rax, rcx, rsp, rip.
        code.starts_with(&RETURN).then_some([168, 160, 120])
    }
}

#[cfg(target_arch = "aarch64")]
mod imp {
    use framehop::aarch64::UnwindRegsAarch64;
    use linux_perf_event_reader::Regs;

    pub type Registers = UnwindRegsAarch64;
    const FP: u64 = 29;
    const LR: u64 = 30;
    const SP: u64 = 31;
    const PC: u64 = 32;
    pub const STACK_POINTER: u64 = SP;
    pub const USER_REGISTERS: u64 = 1 << FP | 1 << LR | 1 << SP | 1 << PC;

    pub fn interrupted(sample: &Regs<'_>) -> Option<(u64, Registers)> {
        let (lr, sp, fp) = (sample.get(LR)?, sample.get(SP)?, sample.get(FP)?);
        Some((sample.get(PC)?, Registers::new(lr, sp, fp)))
    }

    /// Not known from these registers.
    pub fn waits_on(_sample: &Regs<'_>) -> Option<u64> {
        None
    }

    pub fn resumed(_pc: u64, sp: u64, fp: u64) -> Registers {
        Registers::new(0, sp, fp)
    }

    /// Signal handlers return through the vDSO, whose tables describe it.
    pub fn is_signal_return(_code: &[u8]) -> Option<[u64; 3]> {
        None
    }
}
