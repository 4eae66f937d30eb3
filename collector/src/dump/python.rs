//! The Python frames of a thread, read from outside by what is known of CPython's structures
//! ([`engine::python`]).

use super::stack::ThreadStack;
use super::target::Target;
use super::task::Task;
use crate::intern::HashMap;
use crate::recording::{CodeObject, LanguageId};
use crate::remote_memory::RemoteMemory;
use crate::unwind::Code;
use engine::interpreter::memory::Memory;
use engine::python::code::Place;
use engine::python::entries::Entry;
use engine::python::layout::{self, Layout, Threads};
use engine::python::threads;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where glibc's thread structure, to which `pthread_self()` points, has the thread's number.
pub(super) const THREAD_NUMBER: u64 = 720;
/// Behind a thread state's `thread_id`: the thread's number, from 3.11 on.
const NATIVE_ID: u64 = 8;
/// Thread states that are looked through, at most.
const MOST_THREADS: u32 = 100_000;
/// Entries of a stack, at most.
const MOST_ENTRIES: usize = 1000;
/// Frames of a stack, over all its entries, at most.
const MOST_FRAMES: usize = 4096;
/// The same of all threads.
const MOST_OF_ALL: usize = 200_000;
/// Code objects that are described, at most.
const MOST_CODES: usize = 20_000;
/// How long a thread that is not held is read, at most.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// The CPython of a process.
#[derive(Debug)]
pub(super) struct Interpreter {
    runtime: u64,
    code_type: u64,
    minor: u64,
    layout: Layout,
    threads: Threads,
    /// Code objects that were read; `None` of what is none, or the interpreter's own.
    codes: HashMap<u64, Option<CodeObject>>,
    /// Frames that may be read yet.
    left: usize,
}

/// Memory that can be read until that moment, and not at all from then on: so every walk ends,
/// whatever it walks through.
#[derive(Clone, Copy, Debug)]
struct Timed {
    memory: RemoteMemory,
    until: Instant,
}

impl Timed {
    fn new(memory: RemoteMemory, patience: Duration) -> Self {
        let until = Instant::now() + patience;
        Self { memory, until }
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.until
    }

    fn half(self, address: u64) -> Option<u32> {
        self.memory.half(address).filter(|_| !self.is_over())
    }
}

impl Memory for Timed {
    fn load(&self, address: u64) -> Option<u64> {
        self.memory.load(address).filter(|_| !self.is_over())
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        self.memory.copy(address, to).filter(|()| !self.is_over())
    }
}

/// A thread's Python frames, innermost first, by the call of the interpreter's loop that runs them.
#[derive(Clone, Debug, Default)]
pub(super) struct PythonStack {
    pub(super) entries: Vec<Vec<PythonFrame>>,
    pub(super) has_lock: bool,
}

/// A Python frame.
#[derive(Clone, Debug)]
pub(super) struct PythonFrame {
    pub(super) function: Arc<str>,
    pub(super) file: Arc<str>,
    pub(super) line: u32,
}

impl Interpreter {
    /// The one that is mapped, if its structures are known.
    pub(super) fn find(memory: RemoteMemory, code: &Code) -> Option<Self> {
        let (bias, exported) = code.python()?;
        let runtime = bias.wrapping_add(exported.runtime.start);
        let version = match exported.version {
            Some(address) => memory.load(bias.wrapping_add(address))?,
            None => 0x030a_0000 * u64::from(exported.is_3_10),
        };
        let minor = (version >> 24 == 3).then_some(version >> 16 & 0xff)?;
        Some(Self {
            runtime,
            code_type: bias.wrapping_add(exported.code_type),
            minor,
            layout: layout::of(&memory, minor, runtime).ok()?,
            threads: layout::threads(&memory, minor, runtime)?,
            codes: HashMap::default(),
            left: MOST_OF_ALL,
        })
    }

    /// The thread that has the interpreter's lock, by our number.
    pub(super) fn lock_owner(&self, target: &Target) -> Option<u32> {
        let memory = Timed::new(target.memory, PATIENCE);
        let state = match layout::running(self.minor) {
            Some(offset) => memory.at(self.runtime, offset).filter(|state| *state != 0),
            None => self.find_state(memory, |state| self.layout.has_lock(&memory, state)),
        };
        target.thread(self.number(memory, state?)?)
    }

    fn find_state(&self, memory: Timed, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        let wanted = |state: u64| is_it(state).then_some(state);
        threads::find(&memory, self.runtime, &self.threads, MOST_THREADS, wanted)
    }

    /// Whose thread state it is, by the number in the process's own PID namespace.
    fn number(&self, memory: Timed, state: u64) -> Option<u32> {
        let thread = memory.at(state, self.layout.thread_id)?;
        if memory.load(thread) == Some(thread) {
            return memory.half(thread.checked_add(THREAD_NUMBER)?);
        }
        let offset = self.layout.thread_id.checked_add(NATIVE_ID)?;
        (self.minor > 10).then(|| memory.at(state, offset).map(|id| id as u32))?
    }

    fn has_lock(&self, memory: Timed, state: u64) -> bool {
        match layout::running(self.minor) {
            Some(offset) => memory.at(self.runtime, offset) == Some(state),
            None => self.layout.has_lock(&memory, state),
        }
    }

    /// The frames of an entry, at most so many.
    fn frames(&mut self, memory: Timed, entry: &Entry, most: usize) -> Vec<PythonFrame> {
        let (mut found, mut frame) = (Vec::new(), entry.frame);
        for _ in 0..(entry.count as usize).min(most) {
            let place = self.layout.place(&memory, frame);
            found.extend(place.and_then(|place| self.frame(memory, place)));
            match self.layout.caller(&memory, frame) {
                Some(caller) => frame = caller,
                None => break,
            }
        }
        found
    }

    fn frame(&mut self, memory: Timed, place: Place) -> Option<PythonFrame> {
        let (layout, code_type) = (self.layout, self.code_type);
        if self.codes.len() == MOST_CODES && !self.codes.contains_key(&place.code) {
            return None;
        }
        let code = self.codes.entry(place.code);
        let code = code.or_insert_with(|| {
            let mut object = None;
            if layout.check(&memory, place.code, code_type) != 0 {
                layout.describe(&memory, place.code, |code| {
                    object = Some(CodeObject {
                        language: LanguageId::new(0),
                        name: String::from_utf8_lossy(code.name).into(),
                        file: String::from_utf8_lossy(code.file).into(),
                        first_line: code.first_line,
                        format: code.format,
                        lines: code.lines.to_vec(),
                    });
                });
            }
            object
        });
        let Some(code) = code else {
            if memory.is_over() {
                // Another thread's look may have the time.
                self.codes.remove(&place.code);
            }
            return None;
        };
        Some(PythonFrame {
            function: Arc::clone(&code.name),
            file: Arc::clone(&code.file),
            line: code.line(place.position),
        })
    }
}

/// Adds the Python frames of a thread to its stack, as far as they can be read in that time.
pub(super) fn read(target: &mut Target, task: &Task, patience: Duration, to: &mut ThreadStack) {
    let memory = Timed::new(target.memory, patience);
    let Some(python) = target.interpreter.as_mut() else {
        return;
    };
    let (stack, is_whole) = python.stack(memory, task.inner_tid);
    to.python = stack;
    if !is_whole || memory.is_over() {
        let note =
            "its Python frames are not all here: there are too many, or reading them took too long";
        to.notes.push(note.to_owned());
    }
}

impl Interpreter {
    /// The frames of a thread, if it runs any; and whether these are all, as far as their number
    /// goes.
    fn stack(&mut self, memory: Timed, thread: u32) -> (Option<PythonStack>, bool) {
        let state = self.find_state(memory, |state| self.number(memory, state) == Some(thread));
        let Some(state) = state else {
            return (None, true);
        };
        let mut stack = PythonStack {
            entries: Vec::new(),
            has_lock: self.has_lock(memory, state),
        };
        let most = self.left.min(MOST_FRAMES);
        let (mut left, mut is_whole) = (most, true);
        let mut entry = self.layout.innermost(&memory, state);
        while let Some(known) = entry {
            let has_room = left > 0 && stack.entries.len() < MOST_ENTRIES;
            is_whole &= has_room && known.count as usize <= left;
            if !has_room {
                break;
            }
            let frames = self.frames(memory, &known, left);
            left = left.saturating_sub(frames.len().max(1));
            stack.entries.push(frames);
            entry = self.layout.outer(&memory, &known);
        }
        self.left = self.left.saturating_sub(most - left);
        is_whole &= self.codes.len() < MOST_CODES;
        ((!stack.entries.is_empty()).then_some(stack), is_whole)
    }
}
