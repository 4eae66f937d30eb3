//! The Python frames of a thread, read from outside by what is known of CPython's structures
//! ([`engine::python`]).

use super::target::Target;
use super::task::Task;
use crate::intern::HashMap;
use crate::recording::{CodeObject, LanguageId};
use crate::remote_memory::RemoteMemory;
use crate::unwind::Code;
use engine::interpreter::memory::Memory as _;
use engine::python::code::Place;
use engine::python::entries::Entry;
use engine::python::layout::{self, Layout, Threads};
use engine::python::threads;

/// Where glibc's thread structure, to which `pthread_self()` points, has the thread's number.
pub(super) const THREAD_NUMBER: u64 = 720;
/// Behind a thread state's `thread_id`: the thread's number, from 3.11 on.
const NATIVE_ID: u64 = 8;
/// Thread states that are looked through, at most.
const MOST_THREADS: u32 = 100_000;
/// Entries of a stack, and frames, at most.
const MOST_FRAMES: usize = 4096;

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
    pub(super) function: String,
    pub(super) file: String,
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
        })
    }

    /// The thread that has the interpreter's lock, by our number.
    pub(super) fn lock_owner(&self, target: &Target) -> Option<u32> {
        let memory = target.memory;
        let state = match layout::running(self.minor) {
            Some(offset) => memory.at(self.runtime, offset).filter(|state| *state != 0),
            None => self.find_state(memory, |state| self.layout.has_lock(&memory, state)),
        };
        target.thread(self.number(memory, state?)?)
    }

    fn find_state(&self, memory: RemoteMemory, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        let wanted = |state: u64| is_it(state).then_some(state);
        threads::find(&memory, self.runtime, &self.threads, MOST_THREADS, wanted)
    }

    /// Whose thread state it is, by the number in the process's own PID namespace.
    fn number(&self, memory: RemoteMemory, state: u64) -> Option<u32> {
        let thread = memory.at(state, self.layout.thread_id)?;
        if memory.load(thread) == Some(thread) {
            return memory.half(thread.checked_add(THREAD_NUMBER)?);
        }
        let offset = self.layout.thread_id.checked_add(NATIVE_ID)?;
        (self.minor > 10).then(|| memory.at(state, offset).map(|id| id as u32))?
    }

    fn has_lock(&self, memory: RemoteMemory, state: u64) -> bool {
        match layout::running(self.minor) {
            Some(offset) => memory.at(self.runtime, offset) == Some(state),
            None => self.layout.has_lock(&memory, state),
        }
    }

    fn frames(&mut self, memory: RemoteMemory, entry: &Entry) -> Vec<PythonFrame> {
        let (mut found, mut frame) = (Vec::new(), entry.frame);
        for _ in 0..(entry.count as usize).min(MOST_FRAMES) {
            let place = self.layout.place(&memory, frame);
            found.extend(place.and_then(|place| self.frame(memory, place)));
            match self.layout.caller(&memory, frame) {
                Some(caller) => frame = caller,
                None => break,
            }
        }
        found
    }

    fn frame(&mut self, memory: RemoteMemory, place: Place) -> Option<PythonFrame> {
        let (layout, code_type) = (self.layout, self.code_type);
        let code = self.codes.entry(place.code);
        let code = code.or_insert_with(|| {
            let mut object = None;
            if layout.check(&memory, place.code, code_type) != 0 {
                layout.describe(&memory, place.code, |code| {
                    object = Some(CodeObject {
                        language: LanguageId(0),
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
        let code = code.as_ref()?;
        Some(PythonFrame {
            function: code.name.to_string(),
            file: code.file.to_string(),
            line: code.line(place.position),
        })
    }
}

/// The Python frames of a thread; `None` if it runs none.
pub(super) fn read(target: &mut Target, task: &Task) -> Option<PythonStack> {
    let memory = target.memory;
    let python = target.interpreter.as_mut()?;
    let state = python.find_state(memory, |state| {
        python.number(memory, state) == Some(task.inner_tid)
    })?;
    let mut stack = PythonStack {
        entries: Vec::new(),
        has_lock: python.has_lock(memory, state),
    };
    let mut entry = python.layout.innermost(&memory, state);
    while let Some(known) = entry.filter(|_| stack.entries.len() < MOST_FRAMES) {
        stack.entries.push(python.frames(memory, &known));
        entry = python.layout.outer(&memory, &known);
    }
    (!stack.entries.is_empty()).then_some(stack)
}
