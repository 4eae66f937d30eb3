//! With `reuse=check` each walk is made twice, the second time without what the last one left: both
//! must find the same. What is found out is told in the recording, each thing once.

use super::{Walked, walk_into};
use crate::described;
use crate::modules;
use crate::text::Text;
use crate::thread::ThreadState;
use core::iter::zip;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use engine::registers::Registers;
use engine::wire::event::EventKind;
use engine::wire::sample::{Frame, Method, StopReason, flags};

static TOLD: AtomicU32 = AtomicU32::new(0);
/// The bits of what was told.
const SAME: u32 = 1;
const DIFFERENT: u32 = 2;

/// Checks a walk, of which so many frames were reused. `standing` is that of the modules before it:
/// where other threads have libraries come and go meanwhile, two full walks may differ.
///
/// # Signal safety
/// As a walk.
#[cold]
pub(super) fn check(
    this: &ThreadState,
    registers: &Registers,
    walked: &Walked,
    standing: Option<u64>,
) {
    // SAFETY: walks that are no sample are over, or have not begun.
    let room = unsafe { this.room.spare() };
    let next = described::next_number();
    let Some(full) = walk_into(this, room, registers, false) else {
        return;
    };
    let is_cut = |walked: &Walked| {
        let is_troubled = walked.outcome.flags & flags::LANGUAGE_TROUBLE != 0;
        is_troubled || walked.outcome.stop == StopReason::TimeBudget
    };
    let has_stood = standing.is_some() && standing == modules::standing();
    if is_cut(walked) || is_cut(&full) || !has_stood {
        return;
    }
    let is_same = full.depth == walked.depth
        && full.outcome == walked.outcome
        && zip(full.frames(), walked.frames()).all(|(full, walked)| {
            // What could not be described in full yet has a new number in each walk.
            let is_new = full.method == Method::Language && full.pc.0 >= next;
            let pc = if is_new { walked.pc } else { full.pc };
            Frame { pc, ..*full } == *walked
        });
    if !is_same {
        let text = Text::<160>::new()
            .then(b"a walk with ")
            .decimal(walked.reused as u64)
            .then(b" reused frames is not what a full one finds");
        tell(this, DIFFERENT, registers.pc, text.bytes());
    } else if walked.reused > 0 {
        let text = b"walks that reuse frames are checked against full ones";
        tell(this, SAME, registers.pc, text);
    }
}

fn tell(this: &ThreadState, what: u32, pc: u64, text: &[u8]) {
    if TOLD.fetch_or(what, Relaxed) & what == 0 {
        this.event(EventKind::Note, pc, text);
    }
}
