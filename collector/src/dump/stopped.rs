//! `--stop`: each thread is stopped for a moment, one at a time, with all its registers, by a
//! thread of ours: should that end early, the kernel lets the stopped one go, and hands on the
//! signal that it had for it.
//!
//! A stop ends some calls early, so who sleeps in another than those that the kernel certainly
//! resumes with their deadline is left alone, and read from outside. Who goes to sleep in one just
//! when it is stopped has its call made again ([`registers::go_on`]).

use super::interpreted::{self, Native};
use super::stack::{KernelHalf, ThreadStack, lack};
use super::target::Target;
use super::task::Task;
use super::{asleep, call};
use crate::gentle::{Stop, is_filtered, may_be_stopped, moment, wait};
use crate::remote::{MOST, unwind_copy};
use crate::unwind::Stack;
use crate::unwind::registers::{self, Registers};
use crate::whereabouts::Whereabouts;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::thread;
use std::time::Duration;

/// How long frames of an interpreter may be read while a thread is held.
const HELD: Duration = Duration::from_millis(15);

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
    // What takes long the first time.
    target.code();
    let held = thread::scope(|scope| {
        let held = scope.spawn(|| hold(target, task, there, filtered));
        held.join().unwrap_or(Err(Errno::EFAULT))
    });
    let mut stack = match held {
        Ok(stack) => stack,
        // It has gone on meanwhile.
        Err(Errno::EAGAIN) => return asleep::look(target, task),
        Err(errno) => {
            let mut stack = asleep::look_anyhow(target, task).unwrap_or_default();
            stack.notes.push(failure(errno));
            return Some(stack);
        }
    };
    if let Whereabouts::Asleep { call, .. } = there {
        stack.kernel = KernelHalf::Names(kernel);
        // Takes its time, which is not the thread's any more.
        stack.call = call.map(|call| call::decode(target, tid, call));
    }
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

/// What is read of a thread while it is held.
struct Held {
    ip: u64,
    sp: u64,
    registers: Registers,
    bytes: Vec<u8>,
}

impl Held {
    fn unwind(&self, target: &mut Target, task: &Task) -> ThreadStack {
        let copy = Stack {
            sp: self.sp,
            bytes: &self.bytes,
            cut: self.bytes.len() == MOST,
        };
        let frames = unwind_copy(target.code(), self.ip, self.registers, copy);
        let mut stack = ThreadStack {
            notes: Vec::from_iter(lack(frames.stop, true)),
            ..ThreadStack::default()
        };
        let native = Native {
            frames,
            copy,
            is_older: false,
        };
        interpreted::add(target, task, native, HELD, &mut stack);
        stack
    }
}

/// Stops a thread, reads what there is to read, and lets it go; `EAGAIN` if it is not there any
/// more.
fn hold(
    target: &mut Target,
    task: &Task,
    there: Whereabouts,
    filtered: bool,
) -> Result<ThreadStack, Errno> {
    let tid = Pid::from_raw(task.tid.cast_signed());
    ptrace::seize(tid, ptrace::Options::empty())?;
    if Whereabouts::of(target.pid, task.tid) != there {
        return Err(Errno::EAGAIN);
    }
    ptrace::interrupt(tid)?;
    let stop = wait(tid, moment)?;
    let mut user = ptrace::getregs(tid)?;
    let (ip, sp, registers) = registers::stopped(&user);
    if registers::go_on(&mut user, filtered) {
        ptrace::setregs(tid, user)?;
    }
    let held = Held {
        ip,
        sp,
        registers,
        bytes: target.memory.stack(sp, MOST).unwrap_or_default(),
    };
    // Its native frames alone are in the copy.
    let mixed = target
        .code()
        .has_interpreter()
        .then(|| held.unwind(target, task));
    match stop {
        Stop::Asked => ptrace::detach(tid, None)?,
        Stop::Signal(signal) => ptrace::detach(tid, signal)?,
        // The kernel hands it on at the end of this thread, which has it in the target's.
        Stop::RealTime => {}
    }
    Ok(mixed.unwrap_or_else(|| held.unwind(target, task)))
}
