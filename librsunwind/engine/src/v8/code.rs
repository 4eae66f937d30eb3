//! What a frame runs: its function, told from others, and what it is shown as.

use super::baseline::Made;
use super::frame::{self, Bytecode, Instruction, Native, Standing};
use super::heap::Heap;
use super::layout::Layout;
use super::lines::Lines;
use super::rows::write_lines;
use crate::interpreter::memory::Memory;
use crate::mix::mix;
use crate::wire::code::{Code, LONGEST_FILE, LONGEST_LINES, LONGEST_NAME, LineFormat};

/// Where a frame stands in what it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Tells descriptions apart that have lines of something else.
    pub id: u64,
    /// Where in it.
    pub position: u32,
    /// What it runs.
    ran: Ran,
}

/// What a frame of a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
    /// Its bytecodes.
    Interpreted(Bytecode),
    /// What the baseline compiler made of these, which is always the same.
    Baseline(Made),
    /// What an optimising compiler made of it: at a call.
    Optimised,
    /// Something that lines are not known of.
    Other,
}

/// The id and the number of the code of regular expressions: frames do not say of which it is.
pub const EXPRESSION: [u64; 2] = [1, 1];

/// What that is shown as.
#[must_use]
pub fn expression() -> Code<'static> {
    Code {
        name: b"(regular expression)",
        ..Code::default()
    }
}

/// Of the number of a function: that it is not one of V8's own.
const HAS_CODE: u64 = 1;

impl Layout {
    /// The address of a function's `SharedFunctionInfo`, if that is a function.
    pub fn shared(&self, memory: &impl Memory, function: u64) -> Option<u64> {
        let heap = Heap {
            memory,
            layout: self,
        };
        heap.shared(function)
    }

    /// A number that is another for another function, of that `SharedFunctionInfo`; `thread` is a
    /// number of the thread whose it is. 0 if it is none, or nameless: builtins without a name are
    /// called by the name of their code.
    pub fn check(&self, memory: &impl Memory, shared: u64, thread: u64) -> u64 {
        let heap = Heap {
            memory,
            layout: self,
        };
        let found = heap
            .function(shared)
            .filter(|function| heap.has_name(function));
        found.map_or(0, |function| {
            // Scripts are numbered in each thread anew.
            let check = mix(heap.check(&function) ^ thread) & !HAS_CODE;
            let kind = match function.range {
                Some(_) => HAS_CODE,
                None => 2,
            };
            check | kind
        })
    }

    /// Where a frame stands that runs the function of that number.
    pub fn place(
        &self,
        memory: &impl Memory,
        frame: &Native,
        standing: &Standing,
        (shared, check): (u64, u64),
    ) -> Place {
        const INTERPRETED: u64 = 1 << 62;
        const BASELINE: u64 = 1 << 61;
        const OPTIMISED: u64 = 1 << 60;
        let heap = Heap {
            memory,
            layout: self,
        };
        let baseline = || {
            let places = frame::code(memory, frame, standing).into_iter().flatten();
            let mut found = places.filter_map(|at| heap.baseline(shared, at));
            let (made, position) = found.next()?;
            Some((BASELINE, position, Ran::Baseline(made)))
        };
        let interpreted = || {
            let fp = standing.fp.filter(|_| !frame.is_compiled)?;
            let bytecode = frame::bytecode(memory, frame, self.bytecode_data, fp)?;
            Some((INTERPRETED, bytecode.offset, Ran::Interpreted(bytecode)))
        };
        let optimised = || {
            let at = Instruction {
                pc: frame.pc,
                is_exact: frame.is_exact,
            };
            let at = Some(at).filter(|_| frame.is_compiled)?;
            let character = heap.character(shared, at)?;
            let (start, end) = heap.function(shared)?.range?;
            let position = character.checked_sub(start).filter(|_| character <= end)?;
            Some((OPTIMISED, position, Ran::Optimised))
        };
        let ran = match check & HAS_CODE {
            0 => None,
            _ => baseline().or_else(interpreted).or_else(optimised),
        };
        let (id, position, ran) = ran.unwrap_or((0, 0, Ran::Other));
        Place { id, position, ran }
    }

    /// Describes a function as it is to be shown at such a place; not if it cannot be read. `tell`
    /// is also told whether nothing is missing yet.
    #[cold]
    #[inline(never)]
    pub fn describe(
        &self,
        memory: &impl Memory,
        shared: u64,
        place: &Place,
        thread: u64,
        tell: impl FnOnce(Code<'_>, bool),
    ) -> Option<()> {
        let heap = Heap {
            memory,
            layout: self,
        };
        let function = heap.function(shared)?;
        let mut lines = Lines::none();
        let is_whole = heap.lines(&function, &mut lines, thread).is_ok();
        let (mut name, mut file) = ([0; LONGEST_NAME], [0; LONGEST_FILE]);
        let mut rows = [0; LONGEST_LINES];
        let has_lines = lines.first != 0;
        let length = match place.ran {
            Ran::Interpreted(Bytecode { array, .. }) if has_lines => heap
                .of_kind(array, self.types.bytecodes)
                .and_then(|array| heap.bytecode_lines(array, &lines, &mut rows)),
            Ran::Baseline(made) if has_lines => heap.baseline_lines(&made, &lines, &mut rows),
            Ran::Optimised if has_lines => Some(write_lines(&lines, &mut rows)),
            _ => None,
        };
        let code = Code {
            name: heap.name_of(&function, &mut name),
            file: heap.file_of(&function, &mut file),
            first_line: lines.first,
            format: match length {
                Some(_) => LineFormat::Steps,
                None => LineFormat::None,
            },
            lines: rows.get(..length.unwrap_or(0))?,
            ..Code::default()
        };
        tell(code, is_whole);
        Some(())
    }
}
