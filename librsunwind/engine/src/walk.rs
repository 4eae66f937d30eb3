//! The fast part of a walk: frames whose rules are cached and plain, a hash probe and a few loads
//! each.
//!
//! It keeps the cursor in processor registers and stops at anything else; [`crate::unwind`] then
//! takes that step and comes back.
//!
//! # Safety
//! Loads from the verified part of the stack without asking; the CFA is compared with its bounds
//! first.
#![allow(unsafe_code)]

use core::hint::select_unpredictable;

use crate::cursor::Cursor;
use crate::frame_buffer::FrameBuffer;
use crate::last_walk::{Bounds, Known, LastWalk};
use crate::memory::{StackMemory, load_verified};
use crate::registers::{FP, RETURN_ADDRESS_ON_STACK, Register, SLOTS, strip};
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

/// Goes up while rules are cached and plain. `ALL`: with every register that a call preserves.
/// Otherwise the frame pointer and the stack pointer only, which is what nearly every rule needs;
/// the others are then unknown, and what `last` remembers is not walked again. `first` is the rule
/// of the cursor's own frame, if it has just been found. It pauses at a frame that reaches beyond
/// `limit`, where a language is to be asked.
///
/// Stacks are unpredictable, and so are the branches that they would steer: what depends on the
/// rule is selected, not branched on.
///
/// # Signal safety
/// Loads from the verified stack and the cache, stores into the frame buffer.
#[inline]
pub(crate) fn run<const ALL: bool>(
    cursor: &mut Cursor,
    probe: &Probe<'_>,
    memory: &StackMemory,
    frames: &mut FrameBuffer<'_>,
    first: Option<UnwindRule>,
    limit: u64,
    last: &mut LastWalk<'_>,
) -> Pause {
    let (low, high) = memory.plain();
    let high = high.min(limit);
    let (lowest_cfa, span) = match low.wrapping_add(REACH) {
        lowest if lowest <= high => (lowest, high.wrapping_sub(lowest)),
        _ => (0, 0), // nothing is inside: 0 is the CFA of no step
    };
    let bounds = Bounds { lowest_cfa, span };
    let mut slots = cursor.slots();
    let (mut pc, mut sp, mut valid) = (cursor.pc(), cursor.sp(), cursor.valid());
    let Some(mut rule) = first.or_else(|| probe.find(key_of(pc, cursor.is_exact()))) else {
        return Pause::Miss;
    };
    // No step here forgets the frame pointer.
    if valid & FP.bit() == 0 {
        return Pause::Step(rule);
    }
    let mut moved = false;
    let pause = loop {
        let [fp, others @ ..] = &mut slots;
        let from_fp = rule.is_from_frame_pointer();
        let base = select_unpredictable(from_fp, *fp, sp);
        let cfa = base.wrapping_add(rule.offset());
        let is_inside = bounds.hold(cfa);
        if !rule.is_plain() || !is_inside || cfa <= sp {
            break Pause::Step(rule);
        }
        // SAFETY: cfa - REACH ..= cfa lies in the verified stack, and so do the words loaded below.
        let load =
            |words: u64| unsafe { load_verified(cfa.wrapping_sub(8).wrapping_sub(words << 3)) };
        if !RETURN_ADDRESS_ON_STACK && rule.slot(1) == 0 {
            break Pause::Step(rule);
        }
        if rule.drops() {
            if ALL {
                valid = Cursor::forget_all_but_frame(valid);
            }
            cursor.note_dropped();
        }
        let words = rule.slot(0);
        *fp = select_unpredictable(words == 0, *fp, load(words));
        if ALL {
            for ((slot, place), register) in (1u32..).zip(others).zip(OTHERS) {
                let words = rule.slot(slot);
                *place = select_unpredictable(words == 0, *place, load(words));
                valid |= select_unpredictable(words == 0, 0, register.bit());
            }
        }
        pc = if RETURN_ADDRESS_ON_STACK {
            load(0)
        } else {
            strip(load(rule.slot(1)))
        };
        sp = cfa;
        moved = true;
        if pc == 0 {
            break Pause::Stop(StopReason::NullPc);
        }
        if !frames.push(pc, rule.method()) {
            break Pause::Stop(StopReason::FrameBudget);
        }
        if !ALL && RETURN_ADDRESS_ON_STACK && last.is_on() {
            let frame = Known::new(sp, pc, *fp, rule);
            if last.meets(&frame) {
                let outer = last.follow(frame, &bounds, frames);
                (pc, sp, *fp) = (outer.pc, outer.sp, outer.fp);
                if let Some(rule) = outer.rule {
                    break Pause::Step(rule);
                }
            } else {
                last.add(frame);
            }
        }
        let Some(next) = probe.find(key_of(pc, false)) else {
            break Pause::Miss;
        };
        rule = next;
    };
    if moved {
        if !ALL {
            valid = Cursor::forget_all_but_frame(valid);
        }
        cursor.become_caller(pc, sp, &slots, valid);
    }
    pause
}

/// Takes one plain step, as [`run`] does; `false` if it is more than that, and nothing is done.
///
/// # Signal safety
/// Loads from the verified stack.
#[inline]
pub(crate) fn step<const ALL: bool>(
    cursor: &mut Cursor,
    rule: UnwindRule,
    memory: &StackMemory,
) -> bool {
    let (low, high) = memory.plain();
    let (mut slots, mut valid) = (cursor.slots(), cursor.valid());
    let [fp, others @ ..] = &mut slots;
    let base = select_unpredictable(rule.is_from_frame_pointer(), *fp, cursor.sp());
    let cfa = base.wrapping_add(rule.offset());
    let is_inside = low.wrapping_add(REACH) <= cfa && cfa <= high && cursor.sp() < cfa;
    if !RETURN_ADDRESS_ON_STACK || !rule.is_plain() || !is_inside || valid & FP.bit() == 0 {
        return false;
    }
    // SAFETY: cfa - REACH ..= cfa lies in the verified stack, and so do the words loaded below.
    let load = |words: u64| unsafe { load_verified(cfa.wrapping_sub(8).wrapping_sub(words << 3)) };
    if !ALL || rule.drops() {
        valid = Cursor::forget_all_but_frame(valid);
    }
    let words = rule.slot(0);
    *fp = select_unpredictable(words == 0, *fp, load(words));
    if ALL {
        for ((slot, place), register) in (1u32..).zip(others).zip(OTHERS) {
            let words = rule.slot(slot);
            *place = select_unpredictable(words == 0, *place, load(words));
            valid |= select_unpredictable(words == 0, 0, register.bit());
        }
    }
    if rule.drops() {
        cursor.note_dropped();
    }
    cursor.become_caller(load(0), cfa, &slots, valid);
    true
}

/// The slots behind the frame pointer's.
const OTHERS: [Register; 5] = {
    let [_, others @ ..] = SLOTS;
    others
};
