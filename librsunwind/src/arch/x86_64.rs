//! x86-64: system calls, the thread-local pointer, and the signal handler shim.
//!
//! # Safety
//! Assembly. The shim is entered by the kernel on whatever stack the thread is on and leaves through the restorer; everything else
//! is called as ordinary C.
#![allow(unsafe_code)]

use crate::handler;
use crate::thread::ThreadState;
use core::arch::{asm, global_asm, naked_asm};
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use engine::registers::{CONTEXT_PC, CONTEXT_REGISTERS, Registers};

/// ELF machine of this architecture.
pub const MACHINE: u32 = 62;

/// A raw system call: the result, or minus errno. errno itself is not touched.
///
/// # Safety
/// As the system call.
#[inline]
pub unsafe fn syscall6(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let result: isize;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; what the call does is the caller's business.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

// One word per thread in the static TLS block (initial-exec: no lazy allocation, legal in a handler), and the signal restorer, byte for
// byte what unwinders and debuggers recognise as the end of a signal handler.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".local rsunwind_thread_pointer",
    "rsunwind_thread_pointer: .zero 8",
    ".size rsunwind_thread_pointer, 8",
    ".type rsunwind_thread_pointer, @object",
    ".popsection",
    ".pushsection .text.rsunwind_restorer,\"ax\",@progbits",
    ".hidden rsunwind_restorer",
    ".globl rsunwind_restorer",
    ".type rsunwind_restorer, @function",
    "nop",
    "rsunwind_restorer:",
    "mov rax, 15",
    "syscall",
    ".size rsunwind_restorer, . - rsunwind_restorer",
    ".popsection",
);

unsafe extern "C" {
    fn rsunwind_restorer();
}

/// `sa_restorer` for our actions.
pub fn restorer() -> usize {
    rsunwind_restorer as *const () as usize
}

/// This thread's state, or null for a thread that is not ours to sample.
///
/// # Signal safety
/// One load from static TLS.
#[inline]
pub fn thread_pointer() -> *mut ThreadState {
    let pointer: *mut ThreadState;
    // SAFETY: reads this thread's word of the static TLS block declared above.
    unsafe {
        asm!("mov {p}, qword ptr [rip + rsunwind_thread_pointer@gottpoff]", "mov {p}, qword ptr fs:[{p}]",
             p = out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// Sets what [`thread_pointer`] gives on this thread.
#[inline]
pub fn set_thread_pointer(pointer: *mut ThreadState) {
    // SAFETY: writes this thread's word of the static TLS block declared above.
    unsafe {
        asm!("mov {t}, qword ptr [rip + rsunwind_thread_pointer@gottpoff]", "mov qword ptr fs:[{t}], {p}",
             t = out(reg) _, p = in(reg) pointer, options(nostack, preserves_flags));
    }
}

/// The address of the thread's control block: above the stack of a thread that libc created, in the same mapping.
#[inline]
pub fn thread_block() -> u64 {
    let base: u64;
    // SAFETY: the ABI keeps the block's own address in its first word.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) base, options(nostack, preserves_flags, readonly))
    };
    base
}

/// Where the interrupted signal mask lies in the kernel's `struct ucontext`.
pub const CONTEXT_MASK: usize = 296;

/// System calls that a handler without `SA_RESTART` ends. (Others are restarted whatever the handler, or never.)
const RESTARTED: [i64; 31] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_ioctl,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_futex,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendfile,
    libc::SYS_getrandom,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
];

/// If the kernel is about to restart a system call because our action says so, ends it instead, as the kernel does where the action does not.
///
/// # Signal safety
/// Reads and writes the context only.
///
/// # Safety
/// The context is the kernel's, of the signal being handled.
pub unsafe fn end_restarted_call(context: *mut c_void) {
    const FLAGS: u64 = CONTEXT_PC + 8;
    const LENGTH: u64 = 2; // of the instruction
    let [rax, _, rcx, _, _, _, _, _, _, _, _, r11, ..] = CONTEXT_REGISTERS;
    // SAFETY: general registers of the kernel's struct ucontext.
    unsafe {
        let register = |offset: u64| context.byte_add(offset as usize).cast::<u64>();
        let (number, pc) = (register(rax).read(), register(CONTEXT_PC).read());
        let next = pc.wrapping_add(LENGTH);
        // The instruction has left the next one's address and the flags where no other one does; the number is back for its restart.
        let was_made =
            register(rcx).read() == next && register(r11).read() == register(FLAGS).read();
        if was_made && RESTARTED.contains(&(number as i64)) {
            register(rax).write(i64::from(-libc::EINTR) as u64);
            register(CONTEXT_PC).write(next);
        }
    }
}

/// Whether a thread was interrupted right behind an `rt_sigprocmask` that may have let signals in: the processor left the next instruction in
/// rcx, the kernel its result in rax and the arguments where they were.
///
/// # Signal safety
/// Compares only.
pub fn has_just_set_mask(registers: &Registers) -> bool {
    let [rax, _, rcx, _, _, rdi, _, _, _, _, r10, ..] = registers.general;
    let how = [libc::SIG_UNBLOCK, libc::SIG_SETMASK].map(|how| how as u64);
    rax == 0 && rcx == registers.pc && r10 == 8 && how.contains(&rdi)
}

/// The current stack pointer.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nostack, preserves_flags, nomem)) };
    sp
}

/// The signal handler. It uses about a hundred bytes of the stack that the signal came on (which may be an 8 KB alternate stack), then
/// goes over to the thread's own. [`handler::on_signal`] gives 0, or the program's own handler, which is then entered as if the
/// kernel had called it: on the original stack, from which it may even `siglongjmp`.
///
/// # Signal safety
/// This is the handler.
///
/// # Safety
/// For the kernel to call.
#[unsafe(naked)]
pub unsafe extern "C" fn signal_entry(signal: c_int, info: *mut c_void, context: *mut c_void) {
    naked_asm!(
        "endbr64",
        "mov rcx, qword ptr [rip + rsunwind_thread_pointer@gottpoff]",
        "mov rcx, qword ptr fs:[rcx]",
        "push rdi",
        "push rsi",
        "push rdx", // 16-byte aligned again: the kernel enters with rsp = 8 modulo 16
        "test rcx, rcx",
        "jz 2f",
        "mov r8, qword ptr [rcx + {stack_top}]",
        "test r8, r8", // zero where the state was wiped: the child of a fork that nobody told us of
        "jz 2f",
        "mov qword ptr [rcx + {saved_sp}], rsp",
        "mov rsp, r8",
        "call {on_signal}",
        "mov rcx, qword ptr [rip + rsunwind_thread_pointer@gottpoff]",
        "mov rcx, qword ptr fs:[rcx]",
        "mov rsp, qword ptr [rcx + {saved_sp}]",
        "jmp 3f",
        "2:",
        "call {on_stray_signal}",
        "3:",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        "4:",
        "ret",
        saved_sp = const offset_of!(ThreadState, saved_sp),
        stack_top = const offset_of!(ThreadState, stack_top),
        on_signal = sym handler::on_signal,
        on_stray_signal = sym handler::on_stray_signal,
    )
}

/// Leaves the handler from any depth below [`signal_entry`]: the sample is given up, the program goes on. The kernel restores every
/// register when the handler returns, so nothing needs unwinding.
///
/// # Safety
/// Only from code that runs below [`handler::on_signal`] on this thread.
#[unsafe(naked)]
pub unsafe extern "C" fn abandon_handler() -> ! {
    naked_asm!(
        "mov rcx, qword ptr [rip + rsunwind_thread_pointer@gottpoff]",
        "mov rcx, qword ptr fs:[rcx]",
        "mov rsp, qword ptr [rcx + {saved_sp}]",
        "add rsp, 24",
        "ret",
        saved_sp = const offset_of!(ThreadState, saved_sp),
    )
}

/// Calls `function(argument)` on a stack of its own, from ordinary code. Gives 1 if it came back, 0 if [`abandon_call`] cut it short.
/// The place to come back to is kept in `slot`.
///
/// # Safety
/// `stack_top` is the 16-byte aligned end of writable memory that nothing else uses meanwhile.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on_stack(
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    stack_top: usize,
    slot: *mut usize,
) -> usize {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov qword ptr [rcx], rsp",
        "mov rbx, rcx",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsp, rdx",
        "call rax",
        "mov rsp, qword ptr [rbx]",
        "mov eax, 1",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Cuts short the call in progress of [`call_on_stack`] whose slot held `saved_sp`.
///
/// # Safety
/// Only from code below that call.
#[unsafe(naked)]
pub unsafe extern "C" fn abandon_call(saved_sp: usize) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        "xor eax, eax",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret"
    )
}

/// Reads a weak symbol's address: 0 where no loaded library has it. In assembly because the compiler would take the address of a
/// declared function to be non-null.
#[macro_export]
macro_rules! weak_address {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: loads an entry of our own global offset table.
        unsafe {
            core::arch::asm!(concat!(".weak ", $name), concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                 out(reg) address, options(nostack, preserves_flags, pure, readonly));
        }
        address
    }};
}
