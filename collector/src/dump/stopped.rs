//! `--stop`: each thread is stopped for a moment, one at a time, with all its registers, by a
//! thread of ours: should that end early, the kernel lets the stopped one go, and hands on the
//! signal that it had for it.
//!
//! A stop ends some calls early, so who sleeps in another than those that the kernel certainly
//! resumes with their deadline is left alone, and read from outside. Who goes to sleep in one just
//! when it is stopped has its call made again ([`registers::go_on`]).

use super::stack::{KernelHalf, ThreadStack, lack};
use super::target::Target;
use super::task::Task;
use super::{asleep, call, python};
use crate::remote::{MOST, unwind_copy};
use crate::unwind::Stack;
use crate::unwind::registers::{self, Registers};
use crate::whereabouts::{Call, Whereabouts};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread may take to stop, while it is not held: one in the kernel may not stop, one
/// that is ready to run may have to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long frames of an interpreter may be read while a thread is held.
const HELD: Duration = Duration::from_millis(20);

/// Looks at a thread, which is stopped if that does it no harm; `None` if it is not stopped, and
/// does not sleep.
pub(super) fn look(target: &mut Target, task: &Task) -> Option<ThreadStack> {
    let (pid, tid) = (target.pid, task.tid);
    let there = Whereabouts::of(pid, tid);
    let filtered = is_filtered(pid, tid);
    if !may_be_stopped(pid, tid, there, filtered) {
        let mut stack = asleep::look(target, task)?;
        let note = "it was not stopped: its call could end early; it was read from outside";
        stack.notes.push(note.to_owned());
        return Some(stack);
    }
    let kernel = Task::kernel_stack(pid, tid).unwrap_or_default();
    let held = thread::scope(|scope| {
        let held = scope.spawn(|| hold(target, task, there, filtered));
        held.join().unwrap_or(Err(Errno::EFAULT))
    });
    let held = match held {
        Ok(held) => held,
        // It has gone on meanwhile.
        Err(Errno::EAGAIN) => return asleep::look(target, task),
        Err(errno) => {
            let mut stack = asleep::look(target, task).unwrap_or_default();
            stack.notes.push(failure(errno));
            return Some(stack);
        }
    };
    let mut stack = held.stack;
    if let Whereabouts::Asleep { call, .. } = there {
        stack.kernel = KernelHalf::Names(kernel);
        // Takes its time, which is not the thread's any more.
        stack.call = call.map(|call| call::decode(target, tid, call));
    }
    let copy = Stack {
        sp: held.sp,
        bytes: &held.bytes,
        cut: held.bytes.len() == MOST,
    };
    let user = unwind_copy(target.code(), held.ip, held.registers, copy);
    stack.notes.extend(lack(user.stop, true));
    stack.user = Some(user);
    Some(stack)
}

fn failure(errno: Errno) -> String {
    match errno {
        Errno::ETIMEDOUT => {
            "it did not stop (it is in the kernel and cannot be woken, or gets no processor)"
                .to_owned()
        }
        Errno::EPERM => {
            "it may not be stopped: another debugger has it, or this takes root (sudo)".to_owned()
        }
        other => format!("it could not be stopped: {}", other.desc()),
    }
}

/// Whether a seccomp filter says which calls a thread may make.
fn is_filtered(pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let mode = lines.find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

/// Whether a stop certainly does not end what the thread is in.
fn may_be_stopped(pid: u32, tid: u32, there: Whereabouts, filtered: bool) -> bool {
    #[cfg(target_arch = "x86_64")]
    const POLL: &[i64] = &[libc::SYS_poll];
    #[cfg(not(target_arch = "x86_64"))]
    const POLL: &[i64] = &[];
    #[cfg(target_arch = "x86_64")]
    const SELECT: &[i64] = &[libc::SYS_select, libc::SYS_pselect6];
    #[cfg(not(target_arch = "x86_64"))]
    const SELECT: &[i64] = &[libc::SYS_pselect6];
    let (sp, call) = match there {
        Whereabouts::Running => return registers::CAN_GO_ON,
        Whereabouts::Elsewhere => return false,
        Whereabouts::Asleep { call: None, .. } => return true,
        Whereabouts::Asleep {
            sp,
            call: Some(call),
            ..
        } => (sp, call),
    };
    let Call { number, arguments } = call;
    // The kernel notes there how much is left. Where it cannot, the call ends.
    let is_on_stack = |limit: u64| limit == 0 || limit.wrapping_sub(sp) < MOST as u64;
    match number {
        libc::SYS_wait4 | libc::SYS_restart_syscall => true,
        libc::SYS_read => is_resumed_read(pid, tid, arguments[0]),
        libc::SYS_ppoll => is_on_stack(arguments[2]),
        // These go on by another call, `restart_syscall`, for which a filter may kill.
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => !filtered,
        libc::SYS_futex => !filtered || arguments[3] == 0,
        other if POLL.contains(&other) => !filtered,
        other => SELECT.contains(&other) && is_on_stack(arguments[4]),
    }
}

/// Whether reading that descriptor goes on after a stop: sockets and terminals may have time
/// limits, drivers and file systems of programs (FUSE) their own ways.
fn is_resumed_read(pid: u32, tid: u32, fd: u64) -> bool {
    let Ok(file) = fs::read_link(format!("/proc/{pid}/task/{tid}/fd/{}", fd as u32)) else {
        return false;
    };
    let file = file.to_string_lossy();
    let kind = file.strip_prefix("anon_inode:");
    file.starts_with("pipe:[")
        || kind.is_some_and(|kind| matches!(kind, "[eventfd]" | "[timerfd]" | "[signalfd]"))
}

/// What is read of a thread while it is held.
struct Held {
    ip: u64,
    sp: u64,
    registers: Registers,
    bytes: Vec<u8>,
    stack: ThreadStack,
}

/// Stops a thread, reads what there is to read, and lets it go; `EAGAIN` if it is not there any
/// more.
fn hold(
    target: &mut Target,
    task: &Task,
    there: Whereabouts,
    filtered: bool,
) -> Result<Held, Errno> {
    let tid = Pid::from_raw(task.tid.cast_signed());
    ptrace::seize(tid, ptrace::Options::empty())?;
    if Whereabouts::of(target.pid, task.tid) != there {
        return Err(Errno::EAGAIN);
    }
    ptrace::interrupt(tid)?;
    let stop = wait(tid)?;
    let mut user = ptrace::getregs(tid)?;
    let (ip, sp, registers) = registers::stopped(&user);
    if registers::go_on(&mut user, filtered) {
        ptrace::setregs(tid, user)?;
    }
    let mut stack = ThreadStack::default();
    let bytes = target.memory.stack(sp, MOST).unwrap_or_default();
    python::read(target, task, HELD, &mut stack);
    match stop {
        Stop::Asked => ptrace::detach(tid, None)?,
        Stop::Signal(signal) => ptrace::detach(tid, signal)?,
        // The kernel hands it on at the end of this thread, which has it in the target's.
        Stop::RealTime => {}
    }
    Ok(Held {
        ip,
        sp,
        registers,
        bytes,
        stack,
    })
}

/// Why a thread has stopped.
enum Stop {
    /// We asked it to.
    Asked,
    /// A signal came at this moment, which it gets when it goes on.
    Signal(Signal),
    /// The same of one that has no name.
    RealTime,
}

/// Waits until a thread has stopped. What it stopped for stays with it (`WNOWAIT`), so that it is
/// handed on whatever becomes of us.
fn wait(tid: Pid) -> Result<Stop, Errno> {
    let flags = WaitPidFlag::WSTOPPED
        | WaitPidFlag::WEXITED
        | WaitPidFlag::WNOHANG
        | WaitPidFlag::WNOWAIT
        | WaitPidFlag::__WALL;
    let began = Instant::now();
    loop {
        match waitid(Id::Pid(tid), flags) {
            Ok(WaitStatus::PtraceEvent(_, signal, 0)) => return Ok(Stop::Signal(signal)),
            Ok(WaitStatus::PtraceEvent(..)) => return Ok(Stop::Asked),
            Ok(WaitStatus::StillAlive) if began.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_micros(50));
            }
            Ok(WaitStatus::StillAlive) => return Err(Errno::ETIMEDOUT),
            Err(Errno::EINVAL) => return Ok(Stop::RealTime),
            Ok(_) => return Err(Errno::ESRCH),
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SP: u64 = 0x7ffd_0000_0000;

    fn stopped_in(number: i64, arguments: [u64; 6]) -> [bool; 2] {
        let pid = std::process::id();
        let call = Some(Call { number, arguments });
        let there = Whereabouts::Asleep {
            ip: 1,
            sp: SP,
            call,
        };
        [false, true].map(|filtered| may_be_stopped(pid, pid, there, filtered))
    }

    #[test]
    fn only_calls_that_go_on_are_stopped() {
        let no = [0; 6];
        assert_eq!(stopped_in(libc::SYS_epoll_pwait, no), [false; 2]);
        assert_eq!(stopped_in(libc::SYS_recvfrom, no), [false; 2]);
        assert_eq!(stopped_in(libc::SYS_wait4, no), [true; 2]);
        // By `restart_syscall`, for which a seccomp filter may kill.
        assert_eq!(stopped_in(libc::SYS_nanosleep, no), [true, false]);
        assert_eq!(stopped_in(libc::SYS_futex, no), [true; 2]);
        let limit = [1, 0, 0, SP + 8, 0, 0];
        assert_eq!(stopped_in(libc::SYS_futex, limit), [true, false]);
        // Where the rest of the time cannot be noted.
        assert_eq!(
            stopped_in(libc::SYS_ppoll, [0, 0, SP + 8, 0, 0, 0]),
            [true; 2]
        );
        assert_eq!(
            stopped_in(libc::SYS_ppoll, [0, 0, 0x1000, 0, 0, 0]),
            [false; 2]
        );
    }

    #[test]
    fn only_reads_that_go_on_are_stopped() {
        use std::fs::File;
        use std::os::fd::AsRawFd;
        let reads = |fd: &dyn AsRawFd| {
            let fd = fd.as_raw_fd().cast_unsigned();
            stopped_in(libc::SYS_read, [fd.into(), 0, 0, 0, 0, 0])[0]
        };
        let (pipe, _end) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = File::open("/proc/self/status").unwrap();
        assert_eq!(
            (reads(&pipe), reads(&socket), reads(&file)),
            (true, false, false)
        );
    }
}
