//! A thread of another process that is held for some milliseconds and made to call what we like, as
//! if nothing had been: all its registers, its signal mask and the call that it was in are as
//! before when it goes on. While it is held it gets no signals; those that cannot be held back are
//! sent again then, but for SIGSTOP: it stops the process as ever, and whoever lets that go on is
//! heard.
//!
//! ptrace belongs to a thread of ours: all of this runs in a process of its own
//! ([`super::apart`]), at whose end the kernel lets go.
//!
//! # Safety
//! ptrace on structures of ours.
#![allow(unsafe_code)]

use super::auxiliary::{AT_SYSINFO_EHDR, auxiliary};
use super::time_limit::TimeLimit;
use super::undisturbed::is_undisturbed;
use super::{HeldFor, Refusal, obstacles};
use crate::gentle::{Stop, wait};
use crate::processes;
use crate::unwind::registers;
use crate::whereabouts::Whereabouts;
use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use std::time::{Duration, Instant};

/// How long what is called may take.
const PATIENCE: Duration = Duration::from_secs(5);

const GET_MASK: Request = 0x420a;
const SET_MASK: Request = 0x420b;
/// What libc's `ptrace` takes first.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;
const GET_RSEQ: Request = 0x420f;
const NT_X86_XSTATE: usize = 0x202;
/// Code of 64 bits.
const OF_64_BITS: u64 = 0x33;
/// Bytes that the vector registers take at most.
const MOST_VECTORS: usize = 16 << 10;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// When a thread was asked to stop, and for how long it had waited for a processor by then.
#[derive(Clone, Copy)]
struct Since {
    at: Instant,
    ready_ns: u64,
}

impl Since {
    fn now(pid: u32, tid: u32) -> Self {
        let ready_ns = processes::ready_ns(pid.cast_signed(), tid.cast_signed());
        Self {
            at: Instant::now(),
            ready_ns: ready_ns.unwrap_or(0),
        }
    }
}

/// See the module.
pub(super) struct Held {
    pid: Pid,
    tid: Pid,
    user: user_regs_struct,
    limit: Option<TimeLimit>,
    vectors: Vec<u8>,
    mask: u64,
    memory: File,
    /// A system call instruction.
    instruction: u64,
    since: Since,
    /// Signals that came meanwhile, and whether to the thread alone.
    came: RefCell<Vec<(Signal, bool)>>,
    is_released: Cell<bool>,
}

impl Held {
    /// Stops a thread of the process that is not disturbed by that, if there is one.
    ///
    /// # Errors
    /// `EAGAIN` and `EPERM` of [`Refusal::Ptrace`] where a thread was not to be had just now: to
    /// try again takes another process, since this one may have it half and not let go.
    pub(super) fn stop(pid: u32) -> Result<Self, Refusal> {
        obstacles::ignored_trap(pid)?;
        let memory = format!("/proc/{pid}/mem");
        let memory = File::options().read(true).write(true).open(memory);
        let memory = memory.map_err(|error| Refusal::Memory(error.to_string()))?;
        let instruction = instruction(pid, &memory).ok_or(Refusal::NoVdso)?;
        let tids = processes::threads(pid.cast_signed());
        if tids.is_empty() {
            return Err(Refusal::Ended);
        }
        for tid in tids.into_iter().map(i32::cast_unsigned) {
            let there = Whereabouts::of(pid, tid);
            if is_undisturbed(pid, tid, there) {
                return Self::stop_one(pid, tid, there, memory, instruction);
            }
        }
        Err(Refusal::NobodyToStop)
    }

    fn stop_one(
        pid: u32,
        tid: u32,
        there: Whereabouts,
        memory: File,
        instruction: u64,
    ) -> Result<Self, Refusal> {
        let thread = Pid::from_raw(tid.cast_signed());
        ptrace::seize(thread, ptrace::Options::empty()).map_err(Refusal::Ptrace)?;
        let let_go = |signal| {
            let _ = ptrace::detach(thread, signal);
        };
        if Whereabouts::of(pid, tid) != there {
            // One that is not stopped cannot be let go of; it is at the end of our process.
            return Err(Refusal::Ptrace(Errno::EAGAIN));
        }
        let since = Since::now(pid, tid);
        ptrace::interrupt(thread).map_err(Refusal::Ptrace)?;
        match wait(thread, until_told).map_err(Refusal::Ptrace)? {
            Stop::Asked => {}
            Stop::Signal(signal) => {
                let_go(Some(signal));
                return Err(Refusal::Ptrace(Errno::EAGAIN));
            }
            // The kernel hands it on at the end of our process.
            Stop::RealTime => return Err(Refusal::Ptrace(Errno::EAGAIN)),
        }
        let held = Self::begin(pid, thread, memory, instruction, since);
        if held.is_err() {
            let_go(None);
        }
        held
    }

    fn begin(
        pid: u32,
        tid: Pid,
        memory: File,
        instruction: u64,
        since: Since,
    ) -> Result<Self, Refusal> {
        let mut user = ptrace::getregs(tid).map_err(Refusal::Ptrace)?;
        if user.cs != OF_64_BITS {
            return Err(Refusal::Machine);
        }
        if user.fs_base == 0 {
            return Err(Refusal::NoThreadPointer);
        }
        if is_in_sequence(tid, &memory) {
            return Err(Refusal::Ptrace(Errno::EAGAIN));
        }
        let limit = TimeLimit::of(&user);
        registers::go_on(&mut user, false);
        let mut vectors = vec![0; MOST_VECTORS];
        let mut part = libc::iovec {
            iov_base: vectors.as_mut_ptr().cast(),
            iov_len: vectors.len(),
        };
        let mut mask = 0u64;
        let all = !faults();
        // SAFETY: the kernel fills the vector, and writes and reads 8 bytes of a mask.
        unsafe {
            trace(
                libc::PTRACE_GETREGSET,
                tid,
                NT_X86_XSTATE,
                &raw mut part as usize,
            )?;
            trace(GET_MASK, tid, 8, &raw mut mask as usize)?;
            trace(SET_MASK, tid, 8, &raw const all as usize)?;
        }
        vectors.truncate(part.iov_len);
        Ok(Self {
            pid: Pid::from_raw(pid.cast_signed()),
            tid,
            user,
            limit,
            vectors,
            mask,
            memory,
            instruction,
            since,
            came: RefCell::default(),
            is_released: Cell::new(false),
        })
    }

    /// For how long it has been held.
    pub(super) fn so_far(&self) -> HeldFor {
        let now = Since::now(
            self.pid.as_raw().cast_unsigned(),
            self.tid.as_raw().cast_unsigned(),
        );
        let ready_ns = now.ready_ns.saturating_sub(self.since.ready_ns);
        let all = now.at.saturating_duration_since(self.since.at);
        let ready = all.min(Duration::from_nanos(ready_ns));
        HeldFor {
            held: all.saturating_sub(ready),
            ready,
        }
    }

    /// Has it make a system call.
    pub(super) fn call(&self, number: i64, arguments: [u64; 6]) -> Result<u64, Refusal> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let registers = user_regs_struct {
            rip: self.instruction,
            rax: number.cast_unsigned(),
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.user
        };
        ptrace::setregs(self.tid, registers).map_err(Refusal::Ptrace)?;
        let after = self.trapped(ptrace::step)?;
        if after.rip != self.instruction + SYSCALL.len() as u64 {
            return Err(Refusal::Astray(after.rip));
        }
        match after.rax.cast_signed() {
            errno @ -4095..=-1 => Err(Refusal::Call(Errno::from_raw(-errno as i32))),
            _ => Ok(after.rax),
        }
    }

    /// Has it call a function by `caller`, which is `call rax; int3`, on that stack.
    pub(super) fn run(
        &self,
        caller: u64,
        function: u64,
        argument: u64,
        stack: u64,
    ) -> Result<u64, Refusal> {
        /// The direction flag, which functions expect clear.
        const DOWN: u64 = 0x400;
        let registers = user_regs_struct {
            rip: caller,
            rax: function,
            orig_rax: u64::MAX,
            rdi: argument,
            rsp: stack & !15,
            eflags: self.user.eflags & !DOWN,
            ..self.user
        };
        ptrace::setregs(self.tid, registers).map_err(Refusal::Ptrace)?;
        let after = self.trapped(ptrace::cont)?;
        match after.rip == caller + 3 {
            true => Ok(after.rax),
            false => Err(Refusal::Astray(after.rip)),
        }
    }

    /// Lets it go on like that until it has come to the end of what it was made to do. In the end
    /// it is stopped in any case.
    fn trapped(
        &self,
        go: impl Fn(Pid, Option<Signal>) -> nix::Result<()>,
    ) -> Result<user_regs_struct, Refusal> {
        let began = Instant::now();
        let go = |signal| go(self.tid, signal).map_err(Refusal::Ptrace);
        go(None)?;
        loop {
            match waitpid(self.tid, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
                // Kept, it could come behind the SIGCONT that was sent after it.
                Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => go(Some(Signal::SIGSTOP))?,
                Ok(WaitStatus::Stopped(_, signal)) if self.is_from_outside(signal)? => go(None)?,
                Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => {
                    return ptrace::getregs(self.tid).map_err(Refusal::Ptrace);
                }
                // Somebody stops the process: the thread takes part in that when it is released.
                Ok(WaitStatus::PtraceEvent(..)) => go(None)?,
                Ok(WaitStatus::StillAlive) if began.elapsed() < PATIENCE => until_told(),
                Ok(WaitStatus::Stopped(_, signal)) => {
                    let rip = ptrace::getregs(self.tid).map_or(0, |user| user.rip);
                    return Err(Refusal::Faulted(signal, rip));
                }
                Ok(WaitStatus::StillAlive) => {
                    ptrace::interrupt(self.tid).map_err(Refusal::Ptrace)?;
                    // However long it takes: one that is not restored must not be let go of.
                    while matches!(wait(self.tid, until_told), Err(Errno::ETIMEDOUT)) {}
                    return Err(Refusal::Ptrace(Errno::ETIMEDOUT));
                }
                Ok(_) => return Err(Refusal::Ended),
                Err(errno) => return Err(Refusal::Ptrace(errno)),
            }
        }
    }

    /// Whether it has stopped for a signal that nothing which it does has raised: it is noted, and
    /// sent again in the end.
    fn is_from_outside(&self, signal: Signal) -> Result<bool, Refusal> {
        let information = ptrace::getsiginfo(self.tid).map_err(Refusal::Ptrace)?;
        let is_raised = faults() & 1 << (signal as i32 - 1) != 0 && information.si_code > 0;
        if !is_raised {
            let to_thread = information.si_code == libc::SI_TKILL;
            self.came.borrow_mut().push((signal, to_thread));
        }
        Ok(!is_raised)
    }

    /// Writes to its memory.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let written = self.memory.write_all_at(bytes, address);
        written.map_err(|error| Refusal::Memory(error.to_string()))
    }

    /// Lets it go on.
    pub(super) fn release(self) -> Result<(), Refusal> {
        self.restore()
    }

    fn restore(&self) -> Result<(), Refusal> {
        self.is_released.set(true);
        let part = libc::iovec {
            iov_base: self.vectors.as_ptr().cast_mut().cast(),
            iov_len: self.vectors.len(),
        };
        // SAFETY: the kernel reads the vector, and 8 bytes of a mask.
        unsafe {
            trace(
                libc::PTRACE_SETREGSET,
                self.tid,
                NT_X86_XSTATE,
                &raw const part as usize,
            )?;
            trace(SET_MASK, self.tid, 8, &raw const self.mask as usize)?;
        }
        ptrace::setregs(self.tid, self.user).map_err(Refusal::Ptrace)?;
        if let Some(limit) = &self.limit {
            limit.pass(&self.memory);
        }
        ptrace::detach(self.tid, None).map_err(Refusal::Ptrace)?;
        for (signal, to_thread) in self.came.take() {
            // Who is gone needs none.
            match to_thread {
                // SAFETY: no memory involved.
                true => unsafe {
                    let [pid, tid] = [self.pid, self.tid].map(Pid::as_raw);
                    libc::syscall(libc::SYS_tgkill, pid, tid, signal as i32);
                },
                false => drop(kill(self.pid, signal)),
            }
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_released.get() {
            // After a panic of ours: it goes on as it was in any case.
            let _ = self.restore();
        }
    }
}

/// # Safety
/// As the request.
unsafe fn trace(request: Request, tid: Pid, what: usize, data: usize) -> Result<i64, Refusal> {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::ptrace(request, tid.as_raw(), what, data) };
    Errno::result(done).map_err(Refusal::Ptrace)
}

/// Signals that faults raise, and those that nobody blocks.
fn faults() -> u64 {
    let all = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGSYS,
    ];
    all.iter().fold(0, |mask, signal| mask | 1 << (signal - 1))
}

/// Waits until the kernel says that something has become of a thread that we trace, for a
/// millisecond at most: who began us may ignore SIGCHLD, and then it says nothing. All signals are
/// held back here ([`super::apart`]). Whoever looks all the time instead has had its turn on the
/// processor when the other programs of a busy machine have not.
fn until_told() {
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    let most = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // SAFETY: a set, no place for what came, a time.
    unsafe { libc::sigtimedwait(child.as_ref(), std::ptr::null_mut(), &raw const most) };
}

/// Whether the thread is in a restartable sequence, which would not be restarted.
fn is_in_sequence(tid: Pid, memory: &File) -> bool {
    let mut configuration = [0u64; 3];
    // SAFETY: the kernel writes 24 bytes.
    let known = unsafe {
        trace(
            GET_RSEQ,
            tid,
            size_of_val(&configuration),
            configuration.as_mut_ptr() as usize,
        )
    };
    let [area, ..] = configuration;
    if known.is_err() || area == 0 {
        return false;
    }
    let mut sequence = [0; 8];
    memory.read_exact_at(&mut sequence, area + 8).is_err() || sequence != [0; 8]
}

/// A system call instruction of the vDSO, which static programs have, too.
fn instruction(pid: u32, memory: &File) -> Option<u64> {
    let vdso = auxiliary(pid, AT_SYSINFO_EHDR)?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let start = format!("{vdso:x}-");
    let line = maps
        .lines()
        .find(|line| line.trim_start_matches('0').starts_with(&start))?;
    let end = line.split(['-', ' ']).nth(1)?;
    let length = u64::from_str_radix(end, 16).ok()?.checked_sub(vdso)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?.min(64 << 10)];
    memory.read_exact_at(&mut bytes, vdso).ok()?;
    let found = bytes.windows(2).position(|pair| pair == SYSCALL)?;
    Some(vdso + found as u64)
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
