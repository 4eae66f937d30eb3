//! Threads that sleep: read from outside, without a word to them. Of their registers the kernel
//! tells two, where they entered it and their stack pointer; the others are found as they were
//! saved on the stack.

use super::call;
use super::interpreted::{self, Native, PATIENCE};
use super::stack::{KernelHalf, ThreadStack, lack};
use super::target::Target;
use super::task::Task;
use crate::remote::{MOST, unwind_asleep};
use crate::unwind::Stack;
use crate::whereabouts::{Call, Whereabouts};

/// How often a thread that wakes up meanwhile is looked at anew, with all that its interpreter
/// knows; and how often its stack is read, which takes less time.
const TRIES: u32 = 5;
const READS: u32 = 20;

/// A thread as it slept, and its stack.
struct Slept {
    runs: Option<u64>,
    ip: u64,
    sp: u64,
    call: Option<Call>,
    kernel: Vec<String>,
    bytes: Option<Vec<u8>>,
}

/// Looks at a thread; `None` if it does not sleep for as long as that takes.
pub(super) fn look(target: &mut Target, task: &Task) -> Option<ThreadStack> {
    seen(target, task)
        .filter(|(_, is_still)| *is_still)
        .map(|(stack, _)| stack)
}

/// The same of one that nothing else is known of; `None` if it does not sleep.
pub(super) fn look_anyhow(target: &mut Target, task: &Task) -> Option<ThreadStack> {
    let (mut stack, is_still) = seen(target, task)?;
    if !is_still {
        let note = "it woke up whenever it was looked at: frames may be of different moments (--stop holds it)";
        stack.notes.push(note.to_owned());
    }
    Some(stack)
}

/// Looks at a thread. Gives whether what was found is of one moment; `None` if it does not sleep.
fn seen(target: &mut Target, task: &Task) -> Option<(ThreadStack, bool)> {
    let (pid, tid) = (target.pid, task.tid);
    let mut found = None;
    for _ in 0..TRIES {
        let Some((slept, mut is_still)) = read(target, tid) else {
            break;
        };
        let (ip, sp) = (slept.ip, slept.sp);
        let stays = || slept.is_still(pid, tid);
        let mut stack = ThreadStack {
            // Threads of the kernel's own never came from anywhere.
            call: (slept.call)
                .filter(|_| ip != 0)
                .map(|call| call::decode(target, tid, call)),
            kernel: KernelHalf::Names(slept.kernel.clone()),
            ..ThreadStack::default()
        };
        if let Some(bytes) = &slept.bytes {
            let copy = Stack {
                sp,
                bytes,
                cut: bytes.len() == MOST,
            };
            let (frames, guessed) = unwind_asleep(target.code(), ip, copy);
            stack.notes.extend(lack(frames.stop, false));
            if guessed {
                stack.notes.push("a frame pointer that is not known of a thread that sleeps was looked for on the stack: frames may be missing (--stop reads it)".to_owned());
            }
            let native = Native {
                frames,
                copy,
                is_older: false,
            };
            let is_mixed = interpreted::add(target, task, native, PATIENCE, &mut stack);
            is_still = is_still && (!is_mixed || stays());
        }
        found = Some((stack, is_still));
        if is_still {
            break;
        }
    }
    found
}

/// Reads the stack of a thread, and whether it slept all the time; `None` if it never did.
fn read(target: &Target, tid: u32) -> Option<(Slept, bool)> {
    let pid = target.pid;
    let mut found = None;
    for _ in 0..READS {
        let runs = Task::runs(pid, tid);
        let Whereabouts::Asleep { ip, sp, call } = Whereabouts::of(pid, tid) else {
            continue;
        };
        let slept = Slept {
            runs,
            ip,
            sp,
            call,
            // What the arguments of its call mean takes longer, and is found out afterwards.
            bytes: target.memory.stack(sp, MOST),
            kernel: Task::kernel_stack(pid, tid).unwrap_or_default(),
        };
        if slept.is_still(pid, tid) {
            return Some((slept, true));
        }
        found = Some((slept, false));
    }
    found
}

impl Slept {
    /// Whether it has not woken up since.
    fn is_still(&self, pid: u32, tid: u32) -> bool {
        let Self { ip, sp, call, .. } = *self;
        let there = Whereabouts::Asleep { ip, sp, call };
        Task::runs(pid, tid) == self.runs && Whereabouts::of(pid, tid) == there
    }
}
