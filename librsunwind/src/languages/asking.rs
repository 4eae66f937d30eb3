//! The languages in one walk of one thread: their states and entries, what they may still read,
//! what they answer and whether it is believed.
//!
//! A callback is called with a [`Cursor`] that leads back here, so that what it reads and the
//! frames that it gives go through this; they are good for that call alone.
//!
//! # Safety
//! The handler's own stack holds all of this, and one callback runs at a time.
#![allow(unsafe_code)]

use super::call::Call;
use super::layout::{Cursor, CursorFunctions, PLACES, STATE, answer, flags};
use super::reads::Reads;
use super::table::{self, Asked};
use super::{jit, python, ranges};
use crate::text::Text;
use crate::thread::ThreadState;
use crate::{clock, errno};
use core::cell::{Cell, OnceCell, UnsafeCell};
use core::ffi::c_void;
use core::fmt;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use engine::address::RuntimeAddress;
use engine::cursor::Cursor as WalkCursor;
use engine::frame_buffer::FrameBuffer;
use engine::language::{Answer, Languages, MOST_ENTRIES, Question, Steady, Whose};
use engine::memory::StackMemory;
use engine::registers::{COUNT, Register, Registers, SP};
use engine::rule::UnwindRule;
use engine::rule::wide::WideRows;
use engine::wire::event::EventKind;
use engine::wire::sample::{Frame, Method, StopReason};

/// See the module.
pub(crate) struct Asking<'a> {
    this: &'a ThreadState,
    interrupted: &'a Registers,
    /// What callbacks call.
    functions: &'static CursorFunctions,
    states: UnsafeCell<[[u64; STATE / 8]; PLACES]>,
    /// Each language's next entry; 0 if it has none.
    entries: [Cell<u64>; PLACES],
    /// Whose states and entries these are, and stay until the walk is over: who comes to a place in
    /// the middle of it is not asked in it.
    asked: [OnceCell<Asked>; PLACES],
    /// Behind the last of them.
    end: Cell<usize>,
    reads: Reads,
    is_troubled: Cell<bool>,
    has_lock: Cell<bool>,
    /// What the call under way says of its frame: see [`Answer::Steady`].
    steady: Cell<Option<Steady>>,
    /// When the walk began, if somebody wants to know: see [`Languages::moment`].
    began_ns: Cell<u64>,
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// What a call came to.
struct Called {
    answer: i32,
    /// What it was asked about; 0 if not by entry.
    entry: u64,
    pushed: u32,
    is_unreadable: bool,
    is_too_long: bool,
}

impl<'a> Asking<'a> {
    /// For a walk of this thread from there.
    pub(super) fn new(
        this: &'a ThreadState,
        interrupted: &'a Registers,
        functions: &'static CursorFunctions,
    ) -> Self {
        Self {
            this,
            interrupted,
            functions,
            states: UnsafeCell::new([[0; STATE / 8]; PLACES]),
            entries: [const { Cell::new(0) }; PLACES],
            asked: [const { OnceCell::new() }; PLACES],
            end: Cell::new(0),
            reads: Reads::new(),
            is_troubled: Cell::new(false),
            has_lock: Cell::new(false),
            steady: Cell::new(None),
            began_ns: Cell::new(0),
        }
    }

    /// Whether frames of a language may be missing, because it was in trouble.
    pub fn is_troubled(&self) -> bool {
        self.is_troubled.get()
    }

    /// Whether the thread has the lock of its interpreter (Python's GIL).
    pub fn has_lock(&self) -> bool {
        self.has_lock.get()
    }

    fn state(&self, index: usize) -> *mut c_void {
        let states = self.states.get().cast::<[u64; STATE / 8]>();
        states.wrapping_add(index % PLACES).cast()
    }

    /// The cursor that a callback gets.
    fn cursor(&self, index: usize, at: &WalkCursor, memory: &StackMemory) -> Cursor {
        let (low, high) = match memory.plain() {
            (low, high) if low < high => (low, high),
            _ => (0, 0),
        };
        Cursor {
            registers: at.registers().general,
            pc: at.pc(),
            known: at.valid(),
            flags: if at.is_exact() { flags::EXACT } else { 0 },
            cfa: 0,
            entry: 0,
            stack_low: low,
            stack_high: high,
            interrupted: self.interrupted,
            state: self.state(index),
            walk: ptr::null(),
            functions: self.functions,
        }
    }

    /// Calls a callback, for frames or for the entry.
    fn call(
        &'a self,
        index: usize,
        asked: &Asked,
        cursor: &mut Cursor,
        frames: Option<&mut FrameBuffer<'_>>,
    ) -> Called {
        let is_for_entry = frames.is_none();
        let call = self.new_call(index, asked, frames);
        cursor.walk = (&raw const call).cast();
        let entry = cursor.entry;
        // What has nothing left to read with is not to blame again for each frame.
        let was_spent = self.reads.is_spent();
        // What is part of the runtime keeps it where it calls others.
        let _kept = (!asked.is_own()).then(errno::Kept::now);
        let (answer, is_slow) = self.timed(asked, is_for_entry, &call, || match is_for_entry {
            true => {
                cursor.entry = asked.entry(cursor).unwrap_or(0);
                answer::NATIVE
            }
            false => asked.call(cursor),
        });
        Called {
            answer,
            entry,
            pushed: call.pushed.get(),
            is_unreadable: call.is_unreadable.get(),
            is_too_long: is_slow || (call.is_too_much.get() && !was_spent),
        }
    }

    fn new_call<'c>(
        &'c self,
        index: usize,
        asked: &'c Asked,
        frames: Option<&'c mut FrameBuffer<'_>>,
    ) -> Call<'c> {
        Call {
            this: self.this,
            reads: &self.reads,
            has_lock: &self.has_lock,
            steady: &self.steady,
            began_ns: self.began_ns.get(),
            index,
            name: asked.name,
            frames: frames.map_or(ptr::null_mut(), |frames| ptr::from_mut(frames).cast()),
            pushed: Cell::new(0),
            unknown: Cell::new(None),
            is_unreadable: Cell::new(false),
            is_too_much: Cell::new(false),
        }
    }

    /// What a language says in a call of that kind, and whether it took too long.
    fn timed<T>(
        &self,
        asked: &Asked,
        is_for_entry: bool,
        call: &Call<'_>,
        say: impl FnOnce() -> T,
    ) -> (T, bool) {
        let kind = usize::from(is_for_entry);
        let began_ns = asked.is_timed(kind).then(clock::monotonic_ns);
        let said = say();
        let pushed = call.pushed.get();
        asked.count(u64::from(!is_for_entry), u64::from(pushed));
        let is_slow = began_ns.is_some_and(|began_ns| {
            let took_ns = clock::monotonic_ns().saturating_sub(began_ns);
            asked.place.is_slow(kind, took_ns, pushed)
        });
        (said, is_slow)
    }

    /// Python gives what it has in a native frame, from its entry to the frame's end; and its next
    /// entry, or 0.
    fn meet_python(
        &self,
        index: usize,
        asked: &Asked,
        native: Range<u64>,
        frames: &mut FrameBuffer<'_>,
    ) -> u64 {
        let entry = native.start;
        let call = self.new_call(index, asked, Some(frames));
        let was_spent = self.reads.is_spent();
        // SAFETY: so many bytes, aligned, for this language alone, of which one call runs.
        let state: &mut [u64; STATE / 8] = unsafe { &mut *self.state(index).cast() };
        let meet = || python::meet(&call, state, native);
        let (next, is_slow) = self.timed(asked, false, &call, meet);
        let is_not_advancing = next != 0 && next <= entry;
        let next = if is_not_advancing { 0 } else { next };
        self.set_entry(index, next);
        let verdict = Verdict {
            is_unreadable: call.is_unreadable.get(),
            is_not_advancing,
            is_too_long: is_slow || (call.is_too_much.get() && !was_spent),
            is_missing: false,
        };
        if verdict != Verdict::default() || asked.has_strikes() {
            self.judge(asked, verdict);
        }
        next
    }

    /// Believes an answer, or not; gives it, and the next entry where it was asked by entry.
    fn believe(
        &self,
        called: &Called,
        cursor: &Cursor,
        question: &Question<'_>,
    ) -> (Verdict, Answer, u64) {
        let at = question.cursor;
        let mut verdict = Verdict {
            is_unreadable: called.is_unreadable,
            is_too_long: called.is_too_long,
            ..Verdict::default()
        };
        let entry = match question.cfa {
            // Several may be in a frame: where the walk has gone past some in code without tables.
            Some(_) if cursor.entry != 0 && cursor.entry <= called.entry => {
                verdict.is_not_advancing = true;
                0
            }
            // Asked by code, it may have one in the frame, to be asked about it again.
            _ if cursor.entry < at.sp() => 0,
            _ => cursor.entry,
        };
        let answer = match called.answer {
            answer::NOT_MINE | answer::NATIVE => Answer::Native,
            answer::END => Answer::End,
            answer::CALLER => {
                let registers = Registers {
                    general: cursor.registers,
                    pc: cursor.pc,
                };
                let is_whole = registers.pc != 0 && registers.sp().is_multiple_of(8);
                if is_whole && registers.sp() > at.sp() && cursor.known & SP.bit() != 0 {
                    Answer::Caller(at.told(&registers, cursor.known))
                } else {
                    verdict.is_not_advancing = true;
                    Answer::Native
                }
            }
            need => match need.checked_sub(answer::NEED).map(|number| number as usize) {
                Some(number) if number < COUNT => {
                    let is_known = at.valid() & Register(number as u8).bit() != 0;
                    match question.can_redo && !is_known && called.pushed == 0 {
                        true => Answer::MissingRegister,
                        false => {
                            verdict.is_missing = true;
                            Answer::Native
                        }
                    }
                }
                _ => {
                    verdict.is_not_advancing = true;
                    Answer::Native
                }
            },
        };
        (verdict, answer, entry)
    }

    /// Counts trouble, and switches a language off that has had enough.
    #[cold]
    fn judge(&self, asked: &Asked, verdict: Verdict) {
        let is_troubled = verdict != Verdict::default();
        if is_troubled {
            self.is_troubled.set(true);
            let counts = &asked.place.counts;
            let count = |count: &AtomicU64, is_so| count.fetch_add(u64::from(is_so), Relaxed);
            count(&counts.unreadable, verdict.is_unreadable);
            count(&counts.not_advancing, verdict.is_not_advancing);
            count(&counts.too_long, verdict.is_too_long);
            count(&counts.missing, verdict.is_missing);
        } else if self.reads.is_spent() {
            return; // no merit either
        }
        if asked.judge(is_troubled) {
            self.say_switched_off(asked);
        }
    }

    #[cold]
    fn say_switched_off(&self, asked: &Asked) {
        asked.add();
        let counts = &asked.place.counts;
        let part = |count: &AtomicU64| count.load(Relaxed);
        let text = Text::<256>::new()
            .then(b"the unwinder of the language ")
            .then(asked.name)
            .then(b" was switched off after repeated trouble: of ")
            .decimal(part(&counts.asked))
            .then(b" answers ")
            .decimal(part(&counts.unreadable))
            .then(b" read what cannot be read, ")
            .decimal(part(&counts.not_advancing))
            .then(b" did not advance, ")
            .decimal(part(&counts.too_long))
            .then(b" took too long, ")
            .decimal(part(&counts.missing))
            .then(b" missed their frames");
        self.this.event(EventKind::Note, 0, text.bytes());
    }

    /// The language with the nearest entry from a stack address on.
    #[inline]
    fn nearest(&self, from: u64) -> Option<(usize, u64)> {
        match self.only() {
            Some(entry) => (entry >= from.max(1)).then_some((0, entry)),
            None => self.nearest_of_several(from),
        }
    }

    /// The next entry, or 0, of who is at the first place, if nobody is at another one: so it is
    /// in nearly every program that has a language at all.
    #[inline]
    fn only(&self) -> Option<u64> {
        let [first, ..] = &self.entries;
        (self.end.get() <= 1).then(|| first.get())
    }

    #[cold]
    fn nearest_of_several(&self, from: u64) -> Option<(usize, u64)> {
        let mut nearest = None;
        for (index, entry) in self.entries.iter().take(self.end.get()).enumerate() {
            let entry = entry.get();
            if entry >= from.max(1) && nearest.is_none_or(|(_, known)| entry < known) {
                nearest = Some((index, entry));
            }
        }
        nearest
    }

    /// The entry within a native frame; `None` if there are several.
    #[cold]
    fn inside(&self, native: &Range<u64>) -> Option<Option<(usize, u64)>> {
        let entries = (0..).zip(&self.entries).take(self.end.get());
        let entries = entries.map(|(index, entry)| (index, entry.get()));
        let mut inside = entries.filter(|(_, entry)| native.contains(entry));
        let first = inside.next();
        inside.next().is_none().then_some(first)
    }

    /// Who is asked for that place, unless it is switched off.
    fn asked(&self, index: usize) -> Option<&Asked> {
        self.asked.get(index)?.get().filter(|asked| !asked.is_off())
    }

    fn set_entry(&self, index: usize, entry: u64) {
        if let Some(place) = self.entries.get(index) {
            place.set(entry);
        }
    }
}

/// Frames that are steady stay so for 17 ms: 2 to the power of this, ns.
const STEADY: u32 = 24;

/// In which ways a language was in trouble.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Verdict {
    is_unreadable: bool,
    is_not_advancing: bool,
    is_too_long: bool,
    is_missing: bool,
}

impl Languages for Asking<'_> {
    fn begin(&self, leaf: &WalkCursor, memory: &mut StackMemory) {
        self.reads.begin(memory.plain());
        self.is_troubled.set(false);
        self.has_lock.set(false);
        for (index, generation) in table::registered() {
            if let Some(place) = self.asked.get(index)
                && place.get().is_none()
                && let Some(asked) = table::enter(index, generation)
            {
                let _ = place.set(asked);
                self.end.set(self.end.get().max(index.wrapping_add(1)));
            }
            // SAFETY: no callback runs now.
            unsafe { self.state(index).cast::<u8>().write_bytes(0, STATE) };
            self.set_entry(index, 0);
            let Some(asked) = self.asked(index).filter(|asked| asked.has_entries()) else {
                continue;
            };
            let mut cursor = self.cursor(index, leaf, memory);
            let called = self.call(index, asked, &mut cursor, None);
            self.set_entry(index, cursor.entry);
            let verdict = Verdict {
                is_unreadable: called.is_unreadable,
                is_too_long: called.is_too_long,
                ..Verdict::default()
            };
            if verdict != Verdict::default() {
                self.judge(asked, verdict);
            }
        }
    }

    fn moment(&self) -> u64 {
        // In a fork child nothing was described yet.
        let of_process = u64::from(self.this.tid()) << 32;
        let has_steady = ranges::untabled().is_some();
        if has_steady {
            let now_ns = clock::monotonic_ns();
            self.began_ns.set(now_ns);
            (now_ns >> STEADY) ^ of_process
        } else {
            0
        }
    }

    fn entry(&self, from: u64) -> Option<u64> {
        self.nearest(from).map(|(_, entry)| entry)
    }

    fn rule(&self, pc: RuntimeAddress, _: &WideRows) -> Option<UnwindRule> {
        let made = if jit::any() {
            jit::rule(self.this, pc.0)
        } else {
            None
        };
        made.or_else(|| ranges::find(pc.0).map(UnwindRule::language))
    }

    fn untabled(&self) -> Option<u32> {
        ranges::untabled()
    }

    fn ask(
        &self,
        question: &Question<'_>,
        memory: &mut StackMemory,
        frames: &mut FrameBuffer<'_>,
    ) -> Answer {
        let (index, entry) = match (question.whose, self.nearest(question.cursor.sp())) {
            (Whose::Code(index), _) => (index as usize, 0),
            (Whose::Entry, Some(nearest)) => nearest,
            (Whose::Entry, None) => return Answer::Native,
        };
        let Some(asked) = self.asked(index) else {
            self.set_entry(index, 0);
            return Answer::Native;
        };
        if question.whose != Whose::Entry && asked.enters() {
            // It is asked about the same frame when it is known where that ends.
            self.set_entry(index, question.cursor.sp());
            return Answer::Native;
        }
        if let (Whose::Entry, Some(cfa), true) = (question.whose, question.cfa, asked.meets()) {
            self.meet_python(index, asked, entry..cfa, frames);
            return Answer::Native;
        }
        let mut cursor = self.cursor(index, question.cursor, memory);
        cursor.cfa = question.cfa.unwrap_or(0);
        cursor.entry = entry;
        if question.whose == Whose::Entry {
            cursor.flags |= flags::ENTRY;
        }
        if !question.can_redo {
            cursor.flags |= flags::LAST;
        }
        self.steady.set(None);
        let called = self.call(index, asked, &mut cursor, Some(frames));
        let (verdict, answer, next) = self.believe(&called, &cursor, question);
        if question.whose == Whose::Entry || next != 0 {
            self.set_entry(index, next);
        }
        self.judge(asked, verdict);
        let steady = self.steady.take().filter(|steady| match steady {
            Steady::Nothing => called.pushed == 0,
            Steady::Frame(_) => called.pushed == 1,
        });
        match (answer, steady) {
            (Answer::Native, Some(steady)) if verdict == Verdict::default() => {
                Answer::Steady(steady)
            }
            _ => answer,
        }
    }

    fn meet(
        &self,
        native: Range<u64>,
        code: Option<u32>,
        frames: &mut FrameBuffer<'_>,
    ) -> Option<u64> {
        let inside = match self.only() {
            Some(entry) => native.contains(&entry).then_some((0, entry)),
            None => self.inside(&native)?,
        };
        let (index, mut entry) = match (code, inside) {
            (Some(index), None) => (index as usize, native.start),
            (None, Some(first)) => first,
            _ => return None,
        };
        let asked = self.asked(index).filter(|asked| asked.meets())?;
        if asked.enters() != code.is_some() {
            return None;
        }
        for _ in 0..MOST_ENTRIES {
            entry = self.meet_python(index, asked, entry..native.end, frames);
            if !native.contains(&entry) {
                break;
            }
        }
        let next = self.nearest(native.end);
        Some(next.map_or(u64::MAX, |(_, entry)| entry))
    }

    fn finish(
        &self,
        last: &WalkCursor,
        stop: StopReason,
        memory: &mut StackMemory,
        frames: &mut FrameBuffer<'_>,
    ) {
        while let Some((index, entry)) = self.nearest(0) {
            self.set_entry(index, 0);
            let Some(asked) = self.asked(index) else {
                continue;
            };
            // Native frames between are not known, nor whether there are any.
            frames.push_frame(Frame {
                method: Method::Language,
                ..Frame::default()
            });
            let mut cursor = self.cursor(index, last, memory);
            cursor.flags |= flags::REST | flags::LAST;
            cursor.entry = entry;
            let called = self.call(index, asked, &mut cursor, Some(frames));
            let verdict = Verdict {
                is_unreadable: called.is_unreadable,
                is_too_long: called.is_too_long,
                // Else it is code without tables that is to blame, such as a JIT's.
                is_missing: stop == StopReason::Root,
                is_not_advancing: false,
            };
            self.judge(asked, verdict);
        }
    }
}
