//! Code without tables (JIT code, hand-written assembly): along the frame pointer, with doubts.
//!
//! ```text
//!        | return address | fp + 8
//!   fp ->| caller's fp    |
//!        | locals         |
//!   sp ->+----------------+
//! ```
//!
//! A frame pointer that does not hold one is noticed: it must be aligned, above the stack pointer,
//! near it, and readable. At the interrupted instruction itself the frame may not be there yet, or
//! not any more; the usual first and last instructions are recognised.

use super::outset;
use crate::address::RuntimeAddress;
use crate::cursor::Cursor;
use crate::memory::StackMemory;
use crate::module_map::{ModuleKind, Modules};
use crate::registers::{FP, RETURN_ADDRESS, RETURN_ADDRESS_ON_STACK, strip};
use crate::wire::sample::{Method, StopReason};

/// A frame is not larger than this.
pub(super) const LARGEST_FRAME: u64 = 16 << 20;
/// User code lies between these.
pub(super) const CODE: core::ops::Range<u64> = 4096..1 << 56;

/// Takes the cursor to the caller; `without` is the stop reason if the frame pointer leads nowhere.
///
/// # Errors
/// `without`, [`StopReason::FramePointerZero`], [`StopReason::MissingRegister`];
/// [`StopReason::Root`] where the code tells that execution begins there.
///
/// # Signal safety
/// Loads through `memory` only; asks `modules` about a leaf's return address.
pub fn step<M: Modules>(
    cursor: &mut Cursor,
    memory: &mut StackMemory,
    modules: &M,
    without: StopReason,
) -> Result<Method, StopReason> {
    if cursor.is_exact()
        && let Some(frame) = at_edge(cursor, memory)
    {
        return Ok(frame.enter(cursor));
    }
    let Some(fp) = cursor.get(FP) else {
        return Err(StopReason::MissingRegister);
    };
    match chain(cursor.sp(), fp, memory) {
        Some(frame) => Ok(frame.enter(cursor)),
        None if cursor.is_exact() => frameless(cursor, memory, modules)
            .map(|frame| frame.enter(cursor))
            .ok_or(if fp == 0 {
                StopReason::FramePointerZero
            } else {
                without
            }),
        None if outset::is_at(cursor.pc(), memory) => Err(StopReason::Root),
        None if fp == 0 => Err(StopReason::FramePointerZero),
        None => Err(without),
    }
}

struct Caller {
    pc: u64,
    sp: u64,
    fp: u64,
    method: Method,
}

impl Caller {
    fn enter(self, cursor: &mut Cursor) -> Method {
        let mut slots = cursor.slots();
        let [first, ..] = &mut slots;
        *first = self.fp;
        let valid = Cursor::forget_all_but_frame(cursor.valid());
        cursor.become_caller(strip(self.pc), self.sp, &slots, valid);
        self.method
    }
}

/// The frame that the frame pointer names.
fn chain(sp: u64, fp: u64, memory: &mut StackMemory) -> Option<Caller> {
    let caller_sp = fp.checked_add(16)?;
    if fp & 7 != 0 || fp < sp || fp.wrapping_sub(sp) > LARGEST_FRAME {
        return None;
    }
    let caller = Caller {
        fp: memory.load(fp)?,
        pc: memory.load(fp.wrapping_add(8))?,
        sp: caller_sp,
        method: Method::FramePointer,
    };
    (caller.pc == 0 || CODE.contains(&strip(caller.pc))).then_some(caller)
}

/// A frame that is just being made or has just been left, by the instruction at the pc. Known for
/// x86-64.
fn at_edge(cursor: &Cursor, memory: &mut StackMemory) -> Option<Caller> {
    if !RETURN_ADDRESS_ON_STACK {
        return None;
    }
    let (pc, sp) = (cursor.pc(), cursor.sp());
    let fp = cursor.get(FP)?;
    let code = memory.load(pc)?.to_le_bytes();
    let (fp, slot) = match code {
        // push rbp; the same behind endbr64; ret
        [0x55, ..] | [0xf3, 0x0f, 0x1e, 0xfa, 0x55, ..] | [0xc3, ..] => (fp, sp),
        // mov rbp, rsp, in either encoding, just after push rbp
        [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..] => (memory.load(sp)?, sp.checked_add(8)?),
        _ => return None,
    };
    let pc = memory.load(slot)?;
    let is_return = CODE.contains(&pc) && follows_call(pc, memory);
    is_return.then_some(Caller {
        pc,
        sp: slot.wrapping_add(8),
        fp,
        method: Method::Leaf,
    })
}

/// A leaf without a frame, if what should be its return address is one beyond doubt.
fn frameless<M: Modules>(cursor: &Cursor, memory: &mut StackMemory, modules: &M) -> Option<Caller> {
    let sp = cursor.sp();
    let fp = cursor.get(FP)?;
    let (pc, caller_sp) = if RETURN_ADDRESS_ON_STACK {
        (memory.load(sp)?, sp.checked_add(8)?)
    } else {
        (strip(cursor.get(RETURN_ADDRESS)?), sp)
    };
    let module = modules.find(RuntimeAddress(pc.wrapping_sub(1)))?;
    let is_return = module.kind != ModuleKind::Anonymous && follows_call(pc, memory);
    is_return.then_some(Caller {
        pc,
        sp: caller_sp,
        fp,
        method: Method::Leaf,
    })
}

/// Whether the instruction before an address is a call.
pub(super) fn follows_call(pc: u64, memory: &mut StackMemory) -> bool {
    let Some(before) = memory.load(pc.wrapping_sub(8)) else {
        return false;
    };
    let bytes = before.to_le_bytes();
    if !RETURN_ADDRESS_ON_STACK {
        let [.., a, b, c, d] = bytes;
        let word = u32::from_le_bytes([a, b, c, d]);
        // bl; blr, blraa and their like
        return word >> 26 == 0b10_0101 || word & 0xfedf_f000 == 0xd61f_0000 & 0xfedf_f000;
    }
    let [_, a, b, c, d, e, f, g] = bytes;
    let is_indirect = |modrm: u8| modrm & 0x38 == 0x10;
    // call rel32, or call through a register or memory: FF /2 with its possible lengths.
    c == 0xe8
        || f == 0xff && is_indirect(g) && g & 0xc0 != 0x40 && g & 0xc0 != 0x80
        || e == 0xff && is_indirect(f)
        || d == 0xff && is_indirect(e)
        || b == 0xff && is_indirect(c)
        || a == 0xff && is_indirect(b)
}
