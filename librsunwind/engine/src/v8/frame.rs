//! Which function a frame in V8's code runs, and how it stands: its frame may not be there yet, or
//! not any more, where code was interrupted at its beginning or end.
//!
//! ```text
//!        | return address  | fp + 8
//!   fp ->| caller's fp     |
//!        | context         | fp - 8: another number where it is no function's frame
//!        | function        | fp - 16
//!        | argument count  |
//!        | bytecode array  | fp - 32: where it is interpreted, or was
//!        | offset in it    | fp - 40: likewise
//! ```

use super::heap::small;
use crate::interpreter::memory::Memory;
use core::ops::Range;

/// A native frame in V8's code: its registers, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native {
    /// The interrupted instruction if it is exact, else where a call returns to.
    pub pc: u64,
    /// Which of both `pc` is.
    pub is_exact: bool,
    /// Whether its code was made by a compiler at run time.
    pub is_compiled: bool,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// As V8 uses it: the function that begins.
    pub rdi: Option<u64>,
    /// As V8 uses it: where in its bytecodes the interpreter is.
    pub r9: Option<u64>,
    /// As V8 uses it: the bytecodes.
    pub r12: Option<u64>,
}

/// Where a frame stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The tagged pointer to its function, yet to be checked.
    pub function: u64,
    /// What its frame pointer is, if it has its frame.
    pub fp: Option<u64>,
    /// Its caller, where the frame is not there and the code at that place has told.
    pub caller: Option<Caller>,
}

impl Standing {
    /// The places of the words that tell what a frame runs and where, beside its pc: its function,
    /// and where it is interpreted the offset in its bytecodes. Not of one that was interrupted,
    /// which has more to it.
    #[must_use]
    pub fn words(&self, frame: &Native) -> Option<[u64; 2]> {
        let fp = self.fp.filter(|_| !frame.is_exact)?;
        let function = fp.checked_sub(16)?;
        let offset = fp.checked_sub(40)?;
        let lower = if frame.is_compiled { function } else { offset };
        Some([function, lower])
    }
}

/// The caller of a frame that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Where it goes on.
    pub pc: u64,
    /// Its stack pointer.
    pub sp: u64,
    /// Its frame pointer.
    pub fp: u64,
}

/// The numbers of kinds of frames, twice.
const KINDS: Range<u64> = 2..128;
/// A frame is not larger than this, bytes.
pub const LARGEST: u64 = 16 << 20;

/// How a function's code begins: push rbp; mov rbp, rsp; push rsi; push rdi.
const BEGINNING: [u8; 6] = [0x55, 0x48, 0x89, 0xe5, 0x56, 0x57];
/// It may look before whether it is still good, for so many bytes.
const BEFORE: usize = 16;

/// How a frame stands; `None` if it is not that of a function.
pub fn standing(memory: &impl Memory, frame: &Native) -> Option<Standing> {
    let (fp, sp) = (frame.fp, frame.sp);
    if frame.is_exact {
        let code = code_at(memory, frame.pc)?;
        let edge = Edge::of(&code, frame.is_compiled);
        if let Some(edge) = edge {
            return edge.standing(memory, frame);
        }
        if is_at_edge(&code) {
            return None; // the frame is another's, who is next
        }
        // The third and fourth instructions: the slots are not written yet.
        let has_slots = !matches!(code, [0x56, 0x57, ..] | [0x57, ..]) || sp <= fp.wrapping_sub(16);
        if !has_slots && sp <= fp && fp.wrapping_sub(sp) < 16 {
            return Some(Standing {
                function: frame.rdi?,
                fp: None,
                caller: None,
            });
        }
        if fp.wrapping_sub(sp) < 8 {
            return None;
        }
    }
    if fp & 7 != 0 || fp < sp || fp.wrapping_sub(sp) > LARGEST {
        return None;
    }
    let context = memory.load(fp.checked_sub(8)?)?;
    let function = memory.load(fp.checked_sub(16)?)?;
    (context & 3 == 1 && function & 3 == 1).then_some(Standing {
        function,
        fp: Some(fp),
        caller: None,
    })
}

/// Whether a frame is of a regular expression's code, which have that number where those of
/// functions have their context.
pub fn is_expression(memory: &impl Memory, frame: &Native, number: u64) -> bool {
    frame.is_compiled && context(memory, frame) == Some(number)
}

/// Whether a frame is of V8's own code, of a kind that has no function: those have a small number
/// where others have their context, and which kind it is, is a matter of the code alone.
pub fn is_functionless(memory: &impl Memory, frame: &Native) -> bool {
    let is_made = !frame.is_compiled && !frame.is_exact;
    let is_kind = |kind: u64| kind & 1 == 0 && KINDS.contains(&kind);
    is_made && context(memory, frame).is_some_and(is_kind)
}

/// What a frame has where that of a function has its context. Other code without tables has
/// anything in that register, which is not to be read at.
fn context(memory: &impl Memory, frame: &Native) -> Option<u64> {
    let (fp, size) = (frame.fp, frame.fp.wrapping_sub(frame.sp));
    let has_slot = fp & 7 == 0 && (8..=LARGEST).contains(&size);
    has_slot.then(|| memory.load(fp.wrapping_sub(8)))?
}

/// Where an interpreted function stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytecode {
    /// The tagged pointer to its bytecodes, yet to be checked.
    pub array: u64,
    /// Where in them.
    pub offset: u32,
}

/// The tagged pointer to the bytecodes of a frame, if it is one of the interpreter's.
pub fn bytecodes(memory: &impl Memory, fp: u64) -> Option<u64> {
    memory.load(fp.checked_sub(32)?)
}

/// What bytecode a frame of the interpreter's is at, if it is one; `data` is where in an array its
/// bytecodes begin. At calls the frame says so; where a bytecode itself was interrupted, registers
/// do, if they have not been used for something else yet.
pub fn bytecode(memory: &impl Memory, frame: &Native, data: u64, fp: u64) -> Option<Bytecode> {
    let array = bytecodes(memory, fp)?;
    // Where compiled code has something else.
    let saved = small(memory.load(fp.checked_sub(40)?)?)?;
    let start = data.checked_sub(1)?; // of tagged pointers
    let offset = match frame.is_exact {
        false => u64::from(saved),
        true => frame.r9.filter(|_| frame.r12 == Some(array))?,
    };
    Some(Bytecode {
        array: Some(array).filter(|array| array & 3 == 1)?,
        offset: u32::try_from(offset.checked_sub(start)?).ok()?,
    })
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address, or that of the next one.
    pub pc: u64,
    /// Which of both `pc` is.
    pub is_exact: bool,
}

/// Where in its function's code a frame may be, if that is compiled: at its pc, or in a call of one
/// of V8's own functions that has no frame, or not yet.
pub fn code(memory: &impl Memory, frame: &Native, standing: &Standing) -> [Option<Instruction>; 2] {
    let called = |slot: Option<u64>| {
        let pc = memory.load(slot?)?;
        let is_exact = false;
        Some(Instruction { pc, is_exact })
    };
    match (frame.is_compiled, frame.is_exact) {
        (true, is_exact) => {
            let pc = frame.pc;
            [Some(Instruction { pc, is_exact }), None]
        }
        // Of a function whose own frame is yet to come, the call is its caller's.
        (false, true) if standing.fp.is_some() => {
            let top = memory.load(frame.sp);
            let pushed = top
                .filter(|top| *top == frame.fp)
                .and_then(|_| frame.sp.checked_add(8));
            [called(Some(frame.sp)), called(pushed)]
        }
        (false, _) => [None, None],
    }
}

fn code_at(memory: &impl Memory, pc: u64) -> Option<[u8; 24]> {
    let mut code = [0; 24];
    let (words, _) = code.as_chunks_mut::<8>();
    for (word, at) in words.iter_mut().zip((pc..).step_by(8)) {
        *word = memory.load(at)?.to_le_bytes();
    }
    Some(code)
}

/// Where a frame is just being made, or has just been left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Nothing was pushed.
    Before,
    /// The caller's frame pointer was pushed.
    Pushed,
    /// It was popped.
    After,
}

impl Edge {
    /// By the code at the pc.
    pub fn of(code: &[u8; 24], is_compiled: bool) -> Option<Self> {
        if code.starts_with(&BEGINNING) {
            return Some(Self::Before);
        }
        if matches!(code, [0x48, 0x89, 0xe5, 0x56, 0x57, ..]) {
            return Some(Self::Pushed);
        }
        if !is_compiled {
            return None;
        }
        let mut windows = code.windows(BEGINNING.len()).take(BEFORE);
        if windows.any(|window| window == BEGINNING) {
            return Some(Self::Before);
        }
        let is_after = matches!(
            code,
            // ret; ret of so many bytes
            [0xc3, ..] | [0xc2, _, 0, ..]
            // cmp rcx or rax, count; jg; ret of so many bytes
            | [0x48, 0x83, 0xf8 | 0xf9, _, 0x7f, 3, 0xc2, ..] | [0x7f, 3, 0xc2, ..]
            | [0x48, 0x83, 0xf8 | 0xf9, _, 0x0f, 0x8f, 3, 0, 0, 0, 0xc2, ..]
            | [0x0f, 0x8f, 3, 0, 0, 0, 0xc2, ..]
            // pop the return address; lea rsp, [rsp + arguments]; push it; ret
            | [0x41, 0x59 | 0x5a, 0x48 | 0x4a, 0x8d, 0x24, ..]
        );
        is_after.then_some(Self::After)
    }

    fn standing(self, memory: &impl Memory, frame: &Native) -> Option<Standing> {
        let (fp, sp) = (frame.fp, frame.sp);
        let (slot, fp) = match self {
            Self::Before | Self::After => (sp, fp),
            Self::Pushed => (sp.checked_add(8)?, memory.load(sp)?),
        };
        let function = match self {
            Self::Before | Self::Pushed => frame.rdi?,
            // What was popped is still there.
            Self::After => memory.load(sp.checked_sub(24)?)?,
        };
        Some(Standing {
            function,
            fp: None,
            caller: Some(Caller {
                pc: memory.load(slot)?,
                sp: slot.checked_add(8)?,
                fp,
            }),
        })
    }
}

/// Where the native walk takes the return address from the top of the stack.
const fn is_at_edge(code: &[u8; 24]) -> bool {
    matches!(
        code,
        [0x55, ..] | [0xf3, 0x0f, 0x1e, 0xfa, 0x55, ..] | [0xc3, ..] | [0x48, 0x89, 0xe5, ..]
    )
}
