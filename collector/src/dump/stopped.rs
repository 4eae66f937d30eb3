//! `--stop`: each thread is stopped for a moment, one at a time, with all its registers, by a
//! thread of ours: should that end early, the kernel lets the stopped one go.
//!
//! A stop ends some calls early, so who sleeps in another than those that the kernel resumes with
//! their deadline is left alone, and read from outside.

use super::stack::{KernelHalf, ThreadStack, lack};
use super::target::Target;
use super::task::Task;
use super::{asleep, call, python};
use crate::remote::{MOST, unwind_copy};
use crate::unwind::Stack;
use crate::unwind::registers;
use crate::whereabouts::Whereabouts;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread may take to stop: one in the kernel may not.
const PATIENCE: Duration = Duration::from_millis(20);

/// Looks at a thread, which is stopped if that does it no harm.
pub(super) fn look(target: &mut Target, task: &Task) -> Option<ThreadStack> {
    let there = Whereabouts::of(target.pid, task.tid);
    if !may_be_stopped(target.pid, there) {
        let mut stack = asleep::look(target, task)?;
        let note = "it was not stopped: its call would end early; it was read from outside";
        stack.notes.push(note.to_owned());
        return Some(stack);
    }
    let kernel = Task::kernel_stack(target.pid, task.tid).unwrap_or_default();
    let stopped = thread::scope(|scope| {
        let held = scope.spawn(|| hold(target, task, there));
        held.join().unwrap_or(Err(Errno::EFAULT))
    });
    match stopped {
        Ok(mut stack) => {
            if there != Whereabouts::Running {
                stack.kernel = KernelHalf::Names(kernel);
            }
            Some(stack)
        }
        Err(errno) => {
            let mut stack = asleep::look(target, task).unwrap_or_default();
            stack.notes.push(match errno {
                Errno::ETIMEDOUT => {
                    "it did not stop (it is in the kernel, and cannot be woken)".to_owned()
                }
                Errno::EPERM => {
                    "it may not be stopped: another debugger has it, or this takes root (sudo)"
                        .to_owned()
                }
                other => format!("it could not be stopped: {}", other.desc()),
            });
            Some(stack)
        }
    }
}

/// Whether a stop does not end what the thread is in.
fn may_be_stopped(pid: u32, there: Whereabouts) -> bool {
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[i64] = &[libc::SYS_poll, libc::SYS_select];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[i64] = &[];
    const RESUMED: [i64; 7] = [
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_futex,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_wait4,
        libc::SYS_restart_syscall,
    ];
    match there {
        Whereabouts::Running | Whereabouts::Asleep { call: None, .. } => true,
        Whereabouts::Asleep {
            call: Some(call), ..
        } if call.number == libc::SYS_read => {
            // A socket may have a time limit.
            let file = fs::read_link(format!("/proc/{pid}/fd/{}", call.arguments[0] as u32));
            file.is_ok_and(|file| !file.to_string_lossy().starts_with("socket:"))
        }
        Whereabouts::Asleep {
            call: Some(call), ..
        } => RESUMED.contains(&call.number) || OLDER.contains(&call.number),
        Whereabouts::Elsewhere => false,
    }
}

/// Stops a thread, reads what there is to read, and lets it go.
fn hold(target: &mut Target, task: &Task, there: Whereabouts) -> Result<ThreadStack, Errno> {
    let tid = Pid::from_raw(task.tid.cast_signed());
    ptrace::seize(tid, ptrace::Options::empty())?;
    ptrace::interrupt(tid)?;
    // What a signal that came at this moment is: it is handed on.
    let signal = wait(tid)?;
    let read = read(target, task, tid, there);
    ptrace::detach(tid, signal)?;
    let (ip, sp, registers, bytes, mut stack) = read?;
    let copy = Stack {
        sp,
        bytes: &bytes,
        cut: bytes.len() == MOST,
    };
    let user = unwind_copy(target.code(), ip, registers, copy);
    stack.notes.extend(lack(user.stop, true));
    stack.user = Some(user);
    Ok(stack)
}

fn wait(tid: Pid) -> Result<Option<Signal>, Errno> {
    let began = Instant::now();
    loop {
        match waitpid(tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG))? {
            WaitStatus::PtraceEvent(..) => return Ok(None),
            WaitStatus::Stopped(_, signal) => return Ok(Some(signal)),
            WaitStatus::StillAlive if began.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_micros(50))
            }
            WaitStatus::StillAlive => return Err(Errno::ETIMEDOUT),
            _ => return Err(Errno::ESRCH),
        }
    }
}

type Read = (u64, u64, registers::Registers, Vec<u8>, ThreadStack);

fn read(target: &mut Target, task: &Task, tid: Pid, there: Whereabouts) -> Result<Read, Errno> {
    let mut user = ptrace::getregs(tid)?;
    if there == Whereabouts::Running
        && registers::send_back(&mut user)
        && !has_signal(target.pid, task.tid)
    {
        ptrace::setregs(tid, user)?;
    }
    let (ip, sp, registers) = registers::stopped(&user);
    let bytes = target.memory.stack(sp, MOST).unwrap_or_default();
    let call = match there {
        Whereabouts::Asleep {
            call: Some(call), ..
        } => Some(call::decode(target, task.tid, call)),
        _ => None,
    };
    let stack = ThreadStack {
        call,
        python: python::read(target, task),
        ..ThreadStack::default()
    };
    Ok((ip, sp, registers, bytes, stack))
}

/// Whether a signal of its own waits for a thread, which may end its call.
fn has_signal(pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let of_thread = line.strip_prefix("SigPnd:");
        of_thread.or_else(|| line.strip_prefix("ShdPnd:"))
    });
    let mut masks = masks.map(|mask| mask.trim().trim_start_matches('0'));
    masks.any(|mask| !mask.is_empty())
}
