//! What differs between architectures: which registers the kernel hands over, and what the frame of
//! a signal looks like.

pub(crate) use imp::{
    CAN_GO_ON, INTERRUPTED, Registers, SIGNAL_RETURN, STACK_POINTER, USER_REGISTERS, call_before,
    go_on, interrupted, resumed, spot, stopped, waits_on,
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
    use nix::libc::{self, user_regs_struct};

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

    /// Stack pointer and frame pointer.
    pub fn spot(registers: &Registers) -> (u64, u64) {
        (registers.sp(), registers.bp())
    }

    /// The registers of code that a signal interrupted.
    pub fn resumed(ip: u64, sp: u64, bp: u64) -> Registers {
        Registers::new(ip, sp, bp)
    }

    /// Where a thread stands that was stopped: pc, sp, and what a walk takes.
    pub fn stopped(user: &user_regs_struct) -> (u64, u64, Registers) {
        (user.rip, user.rsp, resumed(user.rip, user.rsp, user.rbp))
    }

    /// Whether a call that a stop has ended can be made to go on.
    pub const CAN_GO_ON: bool = true;

    /// Lets the call of a thread that was stopped in it, or just when it went to sleep there, go on
    /// as if nothing had been: the kernel makes it again, unless a signal handler is to run, after
    /// which it has ended with EINTR, as it would have without the stop. Whether registers changed.
    ///
    /// A call that gives EINTR has done none of its work. One that the kernel would resume by
    /// `restart_syscall` is made again by its own number, where a seccomp filter may lack that.
    pub fn go_on(user: &mut user_regs_struct, filtered: bool) -> bool {
        const ENDED: [i64; 24] = [
            libc::SYS_epoll_wait,
            libc::SYS_epoll_pwait,
            libc::SYS_epoll_pwait2,
            libc::SYS_rt_sigtimedwait,
            libc::SYS_semop,
            libc::SYS_semtimedop,
            libc::SYS_io_getevents,
            libc::SYS_io_uring_enter,
            libc::SYS_poll,
            libc::SYS_ppoll,
            libc::SYS_select,
            libc::SYS_pselect6,
            libc::SYS_read,
            libc::SYS_readv,
            libc::SYS_write,
            libc::SYS_writev,
            libc::SYS_recvfrom,
            libc::SYS_recvmsg,
            libc::SYS_recvmmsg,
            libc::SYS_sendto,
            libc::SYS_sendmsg,
            libc::SYS_accept,
            libc::SYS_accept4,
            libc::SYS_connect,
        ];
        /// What the kernel keeps from programs: `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`.
        const MADE_AGAIN: i64 = -514;
        const RESUMED: i64 = -516;
        /// Code of 32 bits, whose calls have other numbers.
        const OF_32_BITS: u64 = 0x23;
        let (result, call) = (user.rax.cast_signed(), user.orig_rax.cast_signed());
        let has_ended = result == -i64::from(libc::EINTR) && ENDED.contains(&call);
        let may_kill = filtered && result == RESUMED && call != -1;
        let changes = user.cs != OF_32_BITS && (has_ended || may_kill);
        if changes {
            user.rax = MADE_AGAIN.cast_unsigned();
        }
        changes
    }

    /// Whether eight bytes of code end in a call; then, if it says so itself, how far it goes.
    pub fn call_before(code: [u8; 8]) -> Option<Option<i64>> {
        let [.., a, b, c, d] = code;
        if code[3] == 0xe8 {
            return Some(Some(i64::from(i32::from_le_bytes([a, b, c, d]))));
        }
        // ff /2: by a register, or by memory with a displacement of no, one or four bytes, with and
        // without an index.
        let by = |at: usize, extent: std::ops::RangeInclusive<u8>| {
            code[at] == 0xff && code[at + 1] & 0x38 == 0x10 && extent.contains(&(code[at + 1] >> 6))
        };
        let indirect = by(6, 0..=3) || by(5, 0..=1) || by(4, 1..=1) || by(2, 0..=2) || by(1, 2..=2);
        indirect.then_some(None)
    }

    /// The code that returns from a signal handler (`mov $SYS_rt_sigreturn, %rax; syscall`), which
    /// C libraries do not all describe in their tables.
    pub const SIGNAL_RETURN: &[u8] = &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    /// Where the registers of the interrupted code lie above the stack pointer there: pc, sp, bp.
    /// struct ucontext of the kernel: flags, link, stack (40 bytes), then r8 … r15, rdi, rsi, rbp,
    /// rbx, rdx, rax, rcx, rsp, rip.
    pub const INTERRUPTED: [u64; 3] = [168, 160, 120];
}

#[cfg(target_arch = "aarch64")]
mod imp {
    use framehop::aarch64::UnwindRegsAarch64;
    use linux_perf_event_reader::Regs;
    use nix::libc::user_regs_struct;

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

    pub fn spot(registers: &Registers) -> (u64, u64) {
        (registers.sp(), registers.fp())
    }

    pub fn resumed(_pc: u64, sp: u64, fp: u64) -> Registers {
        Registers::new(0, sp, fp)
    }

    /// Where a thread stands that was stopped: pc, sp, and what a walk takes.
    pub fn stopped(user: &user_regs_struct) -> (u64, u64, Registers) {
        let walk = Registers::new(user.regs[30], user.sp, user.regs[29]);
        (user.pc, user.sp, walk)
    }

    /// The register of the call's first argument has its result by then.
    pub const CAN_GO_ON: bool = false;

    pub fn go_on(_user: &mut user_regs_struct, _filtered: bool) -> bool {
        false
    }

    /// Not known.
    pub fn call_before(_code: [u8; 8]) -> Option<Option<i64>> {
        None
    }

    /// Signal handlers return through the vDSO, whose tables describe it.
    pub const SIGNAL_RETURN: &[u8] = &[];
    pub const INTERRUPTED: [u64; 3] = [0; 3];
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::go_on;
    use nix::libc::{SYS_epoll_wait, SYS_getpid, SYS_nanosleep, user_regs_struct};

    /// The result of a call after it was stopped, in code of that segment.
    #[allow(unsafe_code)]
    fn after(call: i64, result: i64, code: u64, filtered: bool) -> i64 {
        // SAFETY: it consists of numbers.
        let mut user: user_regs_struct = unsafe { std::mem::zeroed() };
        (user.rax, user.orig_rax, user.cs) = (result.cast_unsigned(), call.cast_unsigned(), code);
        let changed = go_on(&mut user, filtered);
        assert_eq!(changed, user.rax != result.cast_unsigned());
        user.rax.cast_signed()
    }

    #[test]
    fn calls_that_a_stop_ended_are_made_again() {
        assert_eq!(after(SYS_epoll_wait, -4, 0x33, false), -514);
        assert_eq!(after(SYS_epoll_wait, 4, 0x33, false), 4);
        assert_eq!(after(SYS_epoll_wait, -4, 0x23, false), -4);
        assert_eq!(after(SYS_getpid, -4, 0x33, false), -4);
        assert_eq!(after(-1, -4, 0x33, false), -4);
        assert_eq!(after(SYS_nanosleep, -516, 0x33, false), -516);
        assert_eq!(after(SYS_nanosleep, -516, 0x33, true), -514);
    }
}
