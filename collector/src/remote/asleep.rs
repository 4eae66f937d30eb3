//! The stack of a thread that sleeps, of whose registers the kernel tells two: where it entered it,
//! and the stack pointer. The others are found as they were saved on the stack.

use super::{RemoteStack, unwind_copy};
use crate::unwind::registers::resumed;
use crate::unwind::{Code, Stack};
use engine::wire::sample::StopReason;

/// Unwinds a stack of which no frame pointer is known; and whether that had to be looked for.
pub(crate) fn unwind_asleep(code: &Code, ip: u64, stack: Stack<'_>) -> (RemoteStack, bool) {
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
