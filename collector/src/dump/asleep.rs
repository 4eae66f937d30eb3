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
use crate::whereabouts::Whereabouts;

/// How often a thread that wakes up meanwhile is looked at anew.
const TRIES: u32 = 5;

/// Looks at a thread; `None` if it does not sleep.
pub(super) fn look(target: &mut Target, task: &Task) -> Option<ThreadStack> {
    let (pid, tid) = (target.pid, task.tid);
    let mut found = None;
    for _ in 0..TRIES {
        let runs = Task::runs(pid, tid);
        let there = Whereabouts::of(pid, tid);
        let Whereabouts::Asleep { ip, sp, call } = there else {
            continue;
        };
        let mut stack = ThreadStack {
            // Threads of the kernel's own never came from anywhere.
            call: call
                .filter(|_| ip != 0)
                .map(|call| call::decode(target, tid, call)),
            kernel: KernelHalf::Names(Task::kernel_stack(pid, tid).unwrap_or_default()),
            ..ThreadStack::default()
        };
        let bytes = target.memory.stack(sp, MOST);
        let stays = || Task::runs(pid, tid) == runs && Whereabouts::of(pid, tid) == there;
        let mut is_still = stays();
        if let Some(bytes) = bytes {
            let copy = Stack {
                sp,
                bytes: &bytes,
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
        found = Some(stack);
        if is_still {
            return found;
        }
    }
    if let Some(stack) = &mut found {
        let note = "it woke up whenever it was looked at: frames may be of different moments (--stop holds it)";
        stack.notes.push(note.to_owned());
    }
    found
}
