//! Threads that end without a sample: what there is to say of them, in a chunk that is nobody's and
//! goes from hand to hand; and whether the next thread will be of their kind.
//!
//! An event with its ring costs three times what a brief thread does without us. Where one after
//! the other ends before it has used a period, the next has a timer until it shows that it is not
//! brief ([`Outlook::Brief`]).
//!
//! # Safety
//! The chunk is written between taking and leaving it, with all signals held back.
#![allow(unsafe_code)]

use super::output;
use crate::process::PROCESS;
use crate::segment::SEGMENT;
use crate::sys::HeldBack;
use crate::trigger::Outlook;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use engine::wire::record::RecordKind;
use engine::wire::thread::ThreadAccount;

/// Threads in a row that were brief.
static BRIEF: AtomicU32 = AtomicU32::new(0);
/// So many are a habit.
const MANY: u32 = 16;

/// What is to be expected of a thread that begins now; where what it costs cannot be afforded, what
/// is cheapest.
pub(super) fn outlook() -> Outlook {
    match BRIEF.load(Relaxed) {
        MANY.. => Outlook::Brief,
        _ if PROCESS.pace.is_overdrawn() => Outlook::Brief,
        _ => Outlook::Unknown,
    }
}

/// A thread ends.
pub(super) fn ended(was_brief: bool) {
    let in_a_row = match was_brief {
        true => BRIEF.load(Relaxed).saturating_add(1),
        false => 0,
    };
    BRIEF.store(in_a_row, Relaxed);
}

/// Writes the account of a thread. All signals are held back: nor may a handler come between, which
/// would find no chunk to be had.
///
/// # Signal safety
/// As [`crate::segment::Segment::take_common`].
pub(super) fn write(account: &ThreadAccount<'_>, _: &HeldBack) {
    for _ in 0..2 {
        let Ok(chunk) = SEGMENT.take_common() else {
            return;
        };
        let committed = chunk.committed();
        // SAFETY: whoever has it has it alone, and writes it here.
        let written = unsafe {
            output::append(chunk, committed, RecordKind::ThreadAccount, |out| {
                account.encode(out);
            })
        };
        if let Some(committed) = written {
            chunk.commit(committed);
            return SEGMENT.leave_common(chunk);
        }
        chunk.seal();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_brief_threads_in_a_row_are_a_habit_and_one_other_breaks_it() {
        for _ in 0..MANY {
            assert_eq!(outlook(), Outlook::Unknown);
            ended(true);
        }
        assert_eq!(outlook(), Outlook::Brief);
        ended(true);
        assert_eq!(outlook(), Outlook::Brief);
        ended(false);
        assert_eq!(outlook(), Outlook::Unknown);
    }
}
