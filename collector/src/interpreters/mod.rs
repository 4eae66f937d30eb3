//! Frames of interpreters on the stacks of threads that are seen from outside, while they sleep or
//! wait for a CPU: their native frames are known by then, from a copy of the stack or by reading
//! it; what the interpreters say of them lies elsewhere, and is read here, by the same readers that
//! unwinding threads have ([`engine::python`], [`engine::v8`]).
//!
//! ```text
//! native frames, with their places on the stack ─► the same, each followed by those that it runs
//! ```
//!
//! What is read is right as long as the thread has not run meanwhile. **Whoever asks has to know
//! that**: by the times at which the kernel put it on a CPU, or by how often it did. Of a thread
//! that has gone on, only what its stack itself tells to be right is taken
//! ([`Interpreters::look_back`]): JavaScript's functions, of which it has their code.
//!
//! | file | |
//! |---|---|
//! | `memory` | another process's memory |
//! | `python` | CPython's entries of a thread |
//! | `javascript` | the functions of V8's frames |
//! | `sightings` | what was seen of them before |
//! | `descriptions` | code objects, by number |

mod descriptions;
mod javascript;
mod memory;
mod python;
mod sightings;

use crate::unwind::{Code, Spot, Stack};
pub(crate) use descriptions::{Description, Descriptions};
use engine::address::RuntimeAddress;
use engine::python::code::Part;
use engine::python::entries::Entry;
use engine::python::recent::{Codes, WORDS};
use engine::python::tasks::Awaiting;
use engine::wire::sample::{Frame, Method, StopReason};
use memory::{Pages, WithStack};
use python::{MOST_FRAMES, Python, Share, Threads};
use std::fmt;
use std::time::Duration;

/// Languages, by number.
pub(crate) const LANGUAGES: [&str; 2] = ["python", "javascript"];
const PYTHON: u8 = 0;

/// The interpreters of one process.
#[derive(Default)]
pub(crate) struct Interpreters {
    threads: Threads,
    /// Of threads that have gone on.
    left: javascript::Left,
    /// What the frames that were found are called.
    pub(crate) descriptions: Descriptions,
}

impl fmt::Debug for Interpreters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interpreters({} codes)", self.descriptions.count())
    }
}

/// A stack whose native frames are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeStack<'a> {
    /// From leaf to root.
    pub(crate) frames: &'a [Frame],
    /// Where each of them is.
    pub(crate) spots: &'a [Spot],
    /// Why there are no more.
    pub(crate) stop: StopReason,
    /// The stack as it was when they were found, if that is still at hand.
    pub(crate) copy: Option<Stack<'a>>,
    /// Whether the thread may have gone on since: then what it has of an interpreter by now, and
    /// did not have there, is shown nevertheless.
    pub(crate) is_older: bool,
    /// Whether the name is wanted that the program has for the thread.
    pub(crate) wants_name: bool,
}

/// A stack with the frames of interpreters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MixedStack {
    /// From leaf to root: each native frame that runs others has them behind it.
    pub(crate) frames: Vec<Frame>,
    /// Whether some are missing.
    pub(crate) lacks: bool,
    /// Whether it has Python's lock; `None` of a thread without Python.
    pub(crate) has_lock: Option<bool>,
    /// What the program calls the thread, UTF-8, if that is wanted.
    pub(crate) own_name: Option<Vec<u8>>,
}

impl Interpreters {
    /// The thread that has Python's lock, by its number in its own PID namespace.
    pub(crate) fn lock_owner(code: &Code, pid: u32, patience: Duration) -> Option<u32> {
        let memory = Pages::of(pid, patience);
        Python::of(&memory, code)?.lock_owner(&memory)
    }

    /// The stack of a thread, which has the number `tid` in its own PID namespace, as far as it can
    /// be read in that time. `None` where it runs no interpreter.
    pub(crate) fn look(
        &mut self,
        code: &Code,
        (pid, tid): (u32, u32),
        native: NativeStack<'_>,
        patience: Duration,
    ) -> Option<MixedStack> {
        let memory = Pages::of(pid, patience);
        let python = Python::of(&memory, code);
        let share = python
            .as_ref()
            .map(|python| python.share(&memory, tid, &native, &mut self.threads));
        let Share {
            entries,
            lacks,
            has_lock,
        } = share.unwrap_or_default();
        let v8 = code.v8();
        if entries.is_empty() && v8.is_none() {
            return None;
        }
        let mut mixed = MixedStack {
            frames: Vec::with_capacity(native.frames.len()),
            lacks,
            has_lock: (!entries.is_empty()).then_some(has_lock),
            own_name: None,
        };
        if let (Some(python), Some(outermost)) = (&python, entries.last())
            && native.wants_name
            && tid != pid
        {
            mixed.own_name = python.thread_name(&memory, outermost);
        }
        let mut left = MOST_FRAMES;
        let mut entries = entries.into_iter().peekable();
        for (frame, spot) in native.frames.iter().zip(native.spots) {
            mixed.frames.push(*frame);
            let reaches = |entry: &Entry| spot.cfa.is_some_and(|cfa| entry.address < cfa);
            while let Some(entry) = entries.next_if(reaches) {
                match &python {
                    Some(python) if entry.address >= spot.sp || native.is_older => {
                        self.python_frames(&memory, python, &entry, &mut left, &mut mixed);
                    }
                    _ => mixed.lacks = true,
                }
            }
            if let Some(v8) = v8.filter(|_| code.may_be_v8(frame.pc.0)) {
                let memory = WithStack {
                    pages: &memory,
                    stack: native.copy,
                };
                let of = (&memory, u64::from(pid) << 32 | u64::from(tid));
                self.javascript_frame(of, v8, code, (*frame, *spot), &mut mixed);
            }
        }
        if entries.peek().is_some() {
            // Native frames between are not known, nor whether there are any.
            mixed.frames.push(Frame {
                method: Method::Language,
                ..Frame::default()
            });
            mixed.lacks |= native.stop != StopReason::CopyEnded;
        }
        for (entry, python) in entries.zip(python.iter().cycle()) {
            self.python_frames(&memory, python, &entry, &mut left, &mut mixed);
        }
        mixed.lacks |= memory.is_exhausted();
        let has_some = mixed
            .frames
            .iter()
            .any(|frame| frame.method == Method::Language);
        has_some.then_some(mixed)
    }

    /// The frames of an entry, as many as may be `left` in all.
    fn python_frames(
        &mut self,
        memory: &Pages,
        python: &Python,
        entry: &Entry,
        left: &mut u32,
        to: &mut MixedStack,
    ) {
        let layout = &python.layout;
        let mut frame = entry.frame;
        let count = entry.count.min(*left);
        *left -= count;
        to.lacks |= count < entry.count;
        let tasks = python.tasks;
        let task = tasks.and_then(|table| Awaiting::of(memory, layout, entry, table));
        for _ in 0..count {
            self.python_frame(memory, python, frame, to);
            if let Some(mut task) = task.filter(|task| task.outermost == frame) {
                while let Some(frame) = task.next(memory, layout) {
                    self.python_frame(memory, python, frame, to);
                }
            }
            match layout.caller(memory, frame) {
                Some(caller) => frame = caller,
                None => {
                    to.lacks = true;
                    break;
                }
            }
        }
    }

    fn python_frame(&mut self, memory: &Pages, python: &Python, frame: u64, to: &mut MixedStack) {
        let layout = &python.layout;
        let place = layout.place(memory, frame);
        let check = place.map_or(0, |place| {
            let mut known = [0; WORDS];
            let known = &mut Codes::new(&mut known);
            layout.check(memory, place.code, python.code_type, known)
        });
        // Without one it is the interpreter's own.
        if let Some(place) = place.filter(|_| check != 0) {
            let number = self.descriptions.number((PYTHON, place.code, check), || {
                let mut description: Option<Description> = None;
                let _ = layout.describe(memory, place.code, |part| {
                    match part {
                        Part::Code(code, _) => description = Some(Description::new(PYTHON, &code)),
                        Part::Lines(more, _) => description.as_mut()?.extend(&more),
                    }
                    Some(())
                });
                description
            });
            let start = match place.copy {
                0 => Some(0),
                _ => layout.start_of(memory, &place),
            };
            let position = place.position(start);
            to.frames
                .extend(number.map(|number| language_frame(number, position)));
            to.lacks |= number.is_none();
        }
    }
}

const fn language_frame(number: u64, position: u32) -> Frame {
    Frame {
        pc: RuntimeAddress(number),
        method: Method::Language,
        position,
    }
}
