//! The fast part of a walk: frames whose rules are cached and plain, a hash probe and a few loads each.
//!
//! It keeps the cursor in processor registers and stops at anything else; [`crate::unwind`] then takes that step and comes back.
//!
//! # Safety
//! Loads from the verified part of the stack without asking; the CFA is compared with its bounds first.
#![allow(unsafe_code)]

use crate::cursor::Cursor;
use crate::frame_buffer::FrameBuffer;
use crate::memory::{StackMemory, load_verified};
use crate::registers::{FP, PRESERVED, RETURN_ADDRESS_ON_STACK, SLOTS, strip};
use crate::rule::{REACH, UnwindRule};
use crate::rule_cache::{Probe, key_of};
use crate::wire::sample::StopReason;

/// Why the fast part stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    /// No rule is cached for the cursor's pc.
    Miss,
    /// The cursor's frame has this rule, which takes more than the fast part does.
    Step(UnwindRule),
    /// The walk is over.
    Stop(StopReason),
}

/// Goes up while rules are cached and plain.
///
/// # Signal safety
/// Loads from the verified stack and the cache, stores into the frame buffer.
#[inline]
pub(crate) fn run(
    cursor: &mut Cursor,
    probe: &Probe<'_>,
    memory: &StackMemory,
    frames: &mut FrameBuffer<'_>,
) -> Pause {
    let (low, high) = memory.plain();
    let lowest_cfa = low.wrapping_add(REACH);
    let span = high.saturating_sub(lowest_cfa);
    let mut slots = cursor.slots();
    let (mut pc, mut sp, mut valid) = (cursor.pc(), cursor.sp(), cursor.valid());
    let mut exact = cursor.is_exact();
    let pause = loop {
        let Some(rule) = probe.find(key_of(pc, exact)) else {
            break Pause::Miss;
        };
        let from_fp = rule.is_from_frame_pointer();
        if !rule.is_plain() || (from_fp && valid & FP.bit() == 0) {
            break Pause::Step(rule);
        }
        let [fp, ..] = slots;
        let cfa = if from_fp { fp } else { sp }.wrapping_add(rule.offset());
        if cfa.wrapping_sub(lowest_cfa) > span || cfa <= sp {
            break Pause::Step(rule);
        }
        // SAFETY: cfa - REACH ..= cfa lies in the verified stack, and so do the words loaded below.
        let load =
            |words: u64| unsafe { load_verified(cfa.wrapping_sub(8).wrapping_sub(words << 3)) };
        if !RETURN_ADDRESS_ON_STACK && rule.slot(1) == 0 {
            break Pause::Step(rule);
        }
        if rule.drops() {
            valid = Cursor::forget_all_but_frame(valid);
            cursor.note_dropped();
        }
        for ((slot, place), register) in (0u32..).zip(slots.iter_mut()).zip(SLOTS) {
            let words = rule.slot(slot);
            let saved = load(words);
            *place = if words == 0 { *place } else { saved };
            valid |= if words == 0 { 0 } else { register.bit() };
        }
        pc = if RETURN_ADDRESS_ON_STACK {
            load(0)
        } else {
            strip(load(rule.slot(1)))
        };
        sp = cfa;
        valid &= PRESERVED;
        exact = false;
        if pc == 0 {
            break Pause::Stop(StopReason::NullPc);
        }
        if !frames.push(pc, rule.method()) {
            break Pause::Stop(StopReason::FrameBudget);
        }
    };
    if !exact {
        cursor.become_caller(pc, sp, &slots, valid);
    }
    pause
}
