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
use crate::language::Languages;
use crate::last_walk::{Bounds, LastWalk};
use crate::memory::{StackMemory, load_verified};
use crate::registers::{FP, RETURN_ADDRESS_ON_STACK, Register, SLOTS, strip};
use crate::rule::UnwindRule;
use crate::rule_cache::{Probe, key_of, native_key};
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
/// of the cursor's own frame, if it has just been found. It pauses at a frame that a language is to
/// be asked about, unless there is nothing to tell it but where the frame is.
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
    languages: Option<&dyn Languages>,
    last: &mut LastWalk<'_>,
) -> Pause {
    let (low, high) = memory.plain();
    // An entry below belongs to another stack, or to a frame that has gone.
    let entry = languages.and_then(|them| them.entry(cursor.sp()));
    let mut bounds = Bounds::of(low, high.min(entry.unwrap_or(u64::MAX)));
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
    // The native rule found last of a language's frame: those that follow each other were mostly
    // left by the same call. Nobody has code at the key that it begins with.
    let mut native_of = (u64::MAX, UnwindRule::signal());
    let pause = loop {
        let [fp, others @ ..] = &mut slots;
        let (mut cfa, is_plain) = reckon(rule, [sp, *fp], &bounds);
        if !is_plain {
            let key = key_of(pc, cursor.is_exact() && !moved);
            let of = rule;
            let visited = frames.visited();
            let met = languages.and_then(|them| {
                if rule.language_of().is_some() && native_of.0 != key {
                    native_of = (key, probe.find(native_key(key))?);
                }
                let native = match rule.language_of() {
                    Some(_) => native_of.1,
                    None => rule,
                };
                let native = native_step(native, [sp, *fp], memory)?;
                let next = them.meet(sp..native.1, rule.language_of(), frames)?;
                Some((native, next))
            });
            let Some((native, next)) = met else {
                break Pause::Step(rule);
            };
            if !ALL {
                last.interrupt(of, visited);
            }
            (rule, cfa) = native;
            bounds = Bounds::of(low, high.min(next));
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
        // What a frame that a language has met leads to is not remembered.
        let is_kept = !ALL && RETURN_ADDRESS_ON_STACK && last.is_on() && is_plain;
        if is_kept && let Some(outer) = last.come([sp, pc, *fp], rule, bounds, frames) {
            (pc, sp, *fp) = (outer.pc, outer.sp, outer.fp);
            if let Some(rule) = outer.rule {
                break Pause::Step(rule);
            }
        }
        let Some(next) = probe.find(key_of(pc, false)) else {
            break Pause::Miss;
        };
        rule = next;
    };
    if moved {
        let changed = if ALL { SLOTS.len() } else { 1 };
        if !ALL {
            valid = Cursor::forget_all_but_frame(valid);
        }
        let slots = slots.get(..changed).unwrap_or_default();
        cursor.become_caller(pc, sp, slots, valid);
    }
    pause
}

/// The native rule of a frame that a language may have something in, and its CFA, if the step is
/// a plain one.
#[inline]
fn native_step(
    rule: UnwindRule,
    [sp, fp]: [u64; 2],
    memory: &StackMemory,
) -> Option<(UnwindRule, u64)> {
    let (low, high) = memory.plain();
    let (cfa, is_plain) = reckon(rule, [sp, fp], &Bounds::of(low, high));
    (RETURN_ADDRESS_ON_STACK && is_plain).then_some((rule, cfa))
}

/// Where a rule leads to, if it is plain, and whether the step is: to a place further up and within
/// the bounds.
#[inline]
fn reckon(rule: UnwindRule, [sp, fp]: [u64; 2], bounds: &Bounds) -> (u64, bool) {
    let base = select_unpredictable(rule.is_from_frame_pointer(), fp, sp);
    let cfa = base.wrapping_add(rule.offset());
    (cfa, rule.is_plain() && bounds.hold(cfa) && cfa > sp)
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
    let (cfa, is_plain) = reckon(rule, [cursor.sp(), *fp], &Bounds::of(low, high));
    if !RETURN_ADDRESS_ON_STACK || !is_plain || valid & FP.bit() == 0 {
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
