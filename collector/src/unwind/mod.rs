//! Unwinds a copied stack, with framehop, from the tables of the mapped files.

pub mod elf_sections;
mod exported;
pub(crate) mod images;
mod instructions;
pub mod registers;
mod source;

use crate::remote_memory::RemoteMemory;
use elf_sections::{Image, Python};
use engine::frame_buffer::{Depth, FrameBuffer};
use engine::interpreter::memory::Memory as _;
use engine::v8::layout as v8;
use engine::wire::sample::{Frame, Method, StopReason};
use framehop::{Error, FrameAddress, Unwinder as _};
use registers::{Cache, Registers, Unwinder};
use std::ops::Range;
use std::sync::Arc;

/// Code of a process, for unwinding.
#[derive(Clone)]
pub(crate) struct Code {
    pid: i32,
    unwinder: Unwinder,
    modules: Vec<(Range<u64>, u64, Arc<Image>)>,
}

impl Code {
    /// None yet.
    pub(crate) fn of(pid: i32) -> Self {
        Self {
            pid,
            unwinder: Unwinder::default(),
            modules: Vec::new(),
        }
    }

    /// The same of a child of fork.
    pub(crate) fn forked(&self, pid: i32) -> Self {
        Self {
            pid,
            ..self.clone()
        }
    }

    /// Adds a mapped file at its bias, in place of what was there.
    pub(crate) fn add(&mut self, name: &[u8], range: Range<u64>, bias: u64, image: &Arc<Image>) {
        let overlaps = |known: &Range<u64>| known.start < range.end && range.start < known.end;
        for (gone, ..) in self.modules.extract_if(.., |(known, ..)| overlaps(known)) {
            self.unwinder.remove_module(gone.start);
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let sections = image.sections.clone();
        let module = framehop::Module::new(name, range.clone(), bias, sections);
        self.unwinder.add_module(module);
        self.modules.push((range, bias, Arc::clone(image)));
    }

    fn module(&self, address: u64) -> Option<(u64, &Image)> {
        let module = self
            .modules
            .iter()
            .find(|(range, ..)| range.contains(&address))?;
        Some((module.1, &module.2))
    }

    /// Whether a lock there is Python's GIL, but for those of subinterpreters.
    pub(crate) fn is_gil(&self, address: u64) -> bool {
        let found = self.python();
        found.is_some_and(|(bias, python)| python.runtime.contains(&address.wrapping_sub(bias)))
    }

    /// V8, if it is mapped and known.
    pub(crate) fn v8(&self) -> Option<&v8::Layout> {
        let mut modules = self.modules.iter();
        modules.find_map(|(.., image)| image.v8.as_ref())
    }

    /// Whether code is V8's own, or made at run time.
    pub(crate) fn may_be_v8(&self, pc: u64) -> bool {
        let module = self.module(pc);
        module.is_none_or(|(_, image)| image.v8.is_some())
    }

    /// Whether code is part of a file.
    pub(crate) fn is_of_file(&self, pc: u64) -> bool {
        self.module(pc).is_some()
    }

    /// The CPython that it has, with the bias of its addresses.
    pub(crate) fn python(&self) -> Option<(u64, &Python)> {
        let mut modules = self.modules.iter();
        modules.find_map(|(_, bias, image)| Some((*bias, image.python()?)))
    }

    /// Where `_asyncio` says what its tasks have where.
    pub(crate) fn asyncio(&self) -> Option<u64> {
        let mut modules = self.modules.iter();
        modules.find_map(|(_, bias, image)| Some(image.asyncio?.wrapping_add(*bias)))
    }

    /// Whether it has an interpreter that is known.
    pub(crate) fn has_interpreter(&self) -> bool {
        self.python().is_some() || self.v8().is_some()
    }

    /// Whether execution begins in the function of a caller, as its code tells.
    fn is_outset(&self, at: FrameAddress) -> bool {
        let FrameAddress::ReturnAddress(pc) = at else {
            return false;
        };
        let Some((bias, image)) = self.module(pc.get()) else {
            return false;
        };
        let address = pc.get().wrapping_sub(bias);
        image.landmarks().is_outset(address)
    }

    /// Whether the instruction in front of an address is a call that may have led into the function
    /// that has the code at `to`.
    pub(crate) fn is_behind_call(&self, address: u64, to: u64) -> bool {
        /// Functions are not longer than this, bytes.
        const LONGEST: u64 = 1 << 20;
        let found = self.module(address).and_then(|(bias, image)| {
            let mut code = [0; 8];
            let is_code = image.has_code(address.wrapping_sub(bias));
            let before = address.checked_sub(8).filter(|_| is_code)?;
            RemoteMemory(self.pid.unsigned_abs()).copy(before, &mut code)?;
            Some((bias, image, registers::call_before(code)?))
        });
        match found {
            Some((bias, image, Some(distance))) => {
                let target = address.wrapping_add_signed(distance);
                // Else it is a stub that leads elsewhere.
                let is_function = image.has_code(target.wrapping_sub(bias));
                !is_function || to.wrapping_sub(target) < LONGEST
            }
            Some((_, _, None)) => true,
            None => false,
        }
    }

    fn signal_return(&self, address: u64) -> Option<[u64; 3]> {
        let (bias, image) = self.module(address)?;
        let landmarks = image.landmarks();
        let is_return = landmarks.is_signal_return(address.wrapping_sub(bias));
        is_return.then_some(registers::INTERRUPTED)
    }
}

/// A copied stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a> {
    /// Where it began.
    pub(crate) sp: u64,
    pub(crate) bytes: &'a [u8],
    /// Whether there was more than was copied.
    pub(crate) cut: bool,
}

impl Stack<'_> {
    /// So many bytes of it.
    pub(crate) fn at(&self, address: u64, length: usize) -> Option<&[u8]> {
        let offset = usize::try_from(address.checked_sub(self.sp)?).ok()?;
        self.bytes.get(offset..offset.checked_add(length)?)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.at(address, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn ends_before(&self, address: u64) -> bool {
        let end = self.sp.saturating_add(self.bytes.len() as u64);
        address.saturating_add(8) > end
    }
}

/// Where a frame is on the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Its stack pointer.
    pub(crate) sp: u64,
    /// Its frame pointer, which may be that of a frame further out.
    pub(crate) fp: u64,
    /// Where it ends: its caller's stack pointer, if there is one.
    pub(crate) cfa: Option<u64>,
}

/// What came of a walk.
#[derive(Clone, Debug)]
pub(crate) struct Walked {
    pub(crate) depth: Depth,
    pub(crate) stop: StopReason,
    /// Where each frame is that was kept.
    pub(crate) spots: Vec<Spot>,
}

/// Unwinds `stack` from `pc` on into `memory`, and says why it ended.
pub(crate) fn walk(
    code: &Code,
    cache: &mut Cache,
    pc: u64,
    mut registers: Registers,
    stack: Stack<'_>,
    memory: &mut [Frame],
) -> Walked {
    let mut frames = FrameBuffer::new(memory);
    let mut spots = Vec::new();
    let mut place = |registers: &Registers| {
        let (sp, fp) = registers::spot(registers);
        if let Some(Spot { cfa, .. }) = spots.last_mut() {
            *cfa = Some(sp);
        }
        spots.push(Spot { sp, fp, cfa: None });
    };
    let mut at = FrameAddress::from_instruction_pointer(pc);
    let mut method = Method::Registers;
    let mut read = |address| stack.word(address).ok_or(());
    // The very first instruction of a signal handler, which the kernel has just made: whether there
    // are tables for it or not, what lies on top of the stack is where handlers return to.
    let entered = read(registers.sp()).ok();
    let entered = entered.filter(|to| code.signal_return(*to).is_some());
    if let Some(to) = entered.filter(|_| frames.push(pc, method)) {
        place(&registers);
        registers.set_sp(registers.sp().wrapping_add(8));
        at = FrameAddress::from_instruction_pointer(to);
        method = Method::StackCopy;
    }
    let stop = loop {
        if !frames.push(at.address(), method) {
            break StopReason::FrameBudget;
        }
        place(&registers);
        if let Some(offsets) = code.signal_return(at.address()) {
            let words = offsets.map(|offset| read(registers.sp().wrapping_add(offset)));
            let [Ok(pc), Ok(sp), Ok(frame_pointer)] = words else {
                break stopped_at(registers.sp().wrapping_add(offsets[0]), stack);
            };
            registers = registers::resumed(pc, sp, frame_pointer);
            at = FrameAddress::from_instruction_pointer(pc);
            method = Method::SignalFrame;
            continue;
        }
        match code
            .unwinder
            .unwind_frame(at, &mut registers, cache, &mut read)
        {
            Ok(None) => break StopReason::Root,
            Ok(Some(caller)) => match FrameAddress::from_return_address(caller) {
                Some(caller) => at = caller,
                None => break StopReason::NullPc,
            },
            Err(Error::CouldNotReadStack(address)) => break stopped_at(address, stack),
            Err(Error::ReturnAddressIsNull) => break StopReason::NullPc,
            Err(Error::DidNotAdvance | Error::IntegerOverflow) => break StopReason::NotAdvancing,
            Err(Error::FramepointerUnwindingMovedBackwards) => {
                break match code.module(at.address_for_lookup()) {
                    Some(_) if code.is_outset(at) => StopReason::Root,
                    Some(_) => StopReason::NoRow,
                    None => StopReason::UnknownCode,
                };
            }
        }
        method = Method::StackCopy;
    };
    let depth = frames.finish();
    let gap = depth.elided_at as usize;
    spots.drain(gap..gap.saturating_add(depth.elided as usize).min(spots.len()));
    Walked { depth, stop, spots }
}

fn stopped_at(address: u64, stack: Stack<'_>) -> StopReason {
    if stack.cut && stack.ends_before(address) {
        StopReason::CopyEnded
    } else {
        StopReason::UnreadableStack
    }
}
