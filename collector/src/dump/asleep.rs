//! Threads that sleep: read from outside, without a word to them. Of their registers the kernel
//! tells two, where they entered it and their stack pointer; the others are found as they were
//! saved on the stack.

use super::stack::{KernelHalf, ThreadStack, lack};
use super::target::Target;
use super::task::Task;
use super::{call, python};
use crate::remote::{MOST, RemoteStack, unwind_copy};
use crate::unwind::registers::resumed;
use crate::unwind::{Code, Stack};
use crate::whereabouts::Whereabouts;
use engine::wire::sample::StopReason;

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
            python: python::read(target, task),
            ..ThreadStack::default()
        };
        let bytes = target.memory.stack(sp, MOST);
        let is_still = Task::runs(pid, tid) == runs && Whereabouts::of(pid, tid) == there;
        if let Some(bytes) = bytes {
            let copy = Stack {
                sp,
                bytes: &bytes,
                cut: bytes.len() == MOST,
            };
            let (user, guessed) = unwind(target.code(), ip, copy);
            stack.notes.extend(lack(user.stop, false));
            if guessed {
                stack.notes.push("a frame pointer that is not known of a thread that sleeps was looked for on the stack: frames may be missing (--stop reads it)".to_owned());
            }
            stack.user = Some(user);
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

/// Unwinds a stack of which no frame pointer is known; and whether that had to be looked for.
fn unwind(code: &Code, ip: u64, stack: Stack<'_>) -> (RemoteStack, bool) {
    /// Where nothing is, above all stacks: a walk that takes it ends there.
    const NOT_KNOWN: u64 = 0x7fff_ffff_ffff_f000;
    let walk = |fp| unwind_copy(code, ip, resumed(ip, stack.sp, fp), stack);
    let found = walk(NOT_KNOWN);
    if !matches!(
        found.stop,
        StopReason::UnreadableStack | StopReason::CopyEnded
    ) {
        return (found, false);
    }
    match candidates(code, &found, stack).find_map(|fp| reaches_root(&found, walk(fp))) {
        Some(whole) => (whole, true),
        None => (found, false),
    }
}

/// A walk that comes to its root, by way of what is known already.
fn reaches_root(known: &RemoteStack, walked: RemoteStack) -> Option<RemoteStack> {
    let goes_on = walked.frames.len() > known.frames.len() && walked.stop == StopReason::Root;
    goes_on.then_some(walked)
}

/// Where a frame pointer of the outermost known frame may point: to one that was saved, below the
/// address behind a call that may have led to that frame. The nearest first.
fn candidates<'a>(
    code: &'a Code,
    known: &RemoteStack,
    stack: Stack<'a>,
) -> impl Iterator<Item = u64> + 'a {
    /// Walks that are tried, at most.
    const MOST_TRIED: usize = 64;
    let outermost = known.frames.last().map_or(0, |frame| frame.pc.0);
    let (words, _) = stack.bytes.as_chunks::<8>();
    let pairs = words.windows(2).enumerate();
    let places = pairs.filter_map(move |(index, pair)| {
        let [saved, back] = [pair[0], pair[1]].map(u64::from_le_bytes);
        let address = stack.sp.checked_add(8 * index as u64)?;
        let end = stack.sp.saturating_add(stack.bytes.len() as u64);
        // The outermost one is zero.
        let is_saved = saved == 0 || (saved > address && saved <= end);
        (is_saved && code.is_behind_call(back, outermost)).then_some(address)
    });
    places.take(MOST_TRIED)
}
