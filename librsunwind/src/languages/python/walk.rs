//! Python in one walk: which entry comes next, and the frames that each has.

use super::super::call::Call;
use super::super::layout::STATE;
use crate::described::Key;
use crate::modules::python::{Python as Module, tasks};
use core::ops::Range;
use engine::mix::mix;
use engine::python::code::{Frame, Part};
use engine::python::entries::Entry;
use engine::python::layout::Layout;
use engine::python::names;
use engine::python::recent::Codes;
use engine::python::tasks::Awaiting;

/// What is known of the interpreter.
pub(super) struct Interpreter {
    pub(super) module: Module,
    pub(super) layout: Layout,
}

/// See the module.
pub(super) struct Walk<'w, 'c> {
    known: &'w Interpreter,
    call: &'w Call<'c>,
    /// The next entry, in words.
    entry: &'w mut [u64; Entry::WORDS],
    codes: Codes<'w>,
    /// See [`Layout::placed`].
    place: &'w mut u64,
}

impl<'w, 'c> Walk<'w, 'c> {
    /// As it is kept in the words of a language's state.
    pub(super) fn new(
        known: &'w Interpreter,
        call: &'w Call<'c>,
        state: &'w mut [u64; STATE / 8],
    ) -> Option<Self> {
        let (entry, rest) = state.split_first_chunk_mut()?;
        let (codes, rest) = rest.split_first_chunk_mut()?;
        Some(Self {
            known,
            call,
            entry,
            codes: Codes::new(codes),
            place: rest.first_mut()?,
        })
    }

    /// That entry is the next.
    pub(super) fn come_to(&mut self, entry: &Entry) {
        *self.entry = entry.to_words();
    }

    /// Gives the frames of the next entry, which lies in a native frame at these addresses, at its
    /// beginning if that is known; and where the one behind it is.
    pub(super) fn give(&mut self, native: Range<u64>) -> Option<u64> {
        let [address, ..] = *self.entry;
        if address == Entry::UNPLACED {
            let entry = Entry::from_words(self.entry);
            let placed = (self.known.layout).placed(self.call, &entry, native, self.place);
            return match placed {
                Some(placed) => self.give_one(&placed),
                None => Some(address),
            };
        }
        if address != native.start {
            return None;
        }
        self.give_one(&Entry::from_words(self.entry))
    }

    /// Gives the frames of all entries that were not met.
    pub(super) fn give_rest(&mut self) {
        /// Of so many, at most.
        const MOST: u32 = 1000;
        for _ in 0..MOST {
            let entry = Entry::from_words(self.entry);
            if entry.frame == 0 {
                break;
            }
            let _ = self.give_one(&entry);
        }
    }

    /// Gives the frames of an entry. The one behind it is the next then, and this is where it is;
    /// behind the last one there is nothing that the end of the walk could give again.
    #[inline(never)]
    fn give_one(&mut self, entry: &Entry) -> Option<u64> {
        let next = self.give_frames(entry);
        *self.entry = next.map_or([0; Entry::WORDS], Entry::to_words);
        next.map(|next| next.address)
    }

    /// Gives the frames of an entry, and the next entry.
    #[inline]
    fn give_frames(&mut self, entry: &Entry) -> Option<Entry> {
        /// Frames of an entry, at most: more than a sample has room for. Of more, both ends.
        const MOST: u32 = 16_000;
        let left_out = entry.count.saturating_sub(MOST);
        let gap = MOST / 2..(MOST / 2).saturating_add(left_out);
        let (memory, layout) = (self.call, &self.known.layout);
        let task = tasks().and_then(|table| Awaiting::of(memory, layout, entry, table));
        let (mut frame, mut outermost) = (entry.frame, 0);
        let mut innermost = entry.innermost;
        for index in 0..entry.count {
            let mut said = innermost.take();
            if !gap.contains(&index) {
                said = said.or_else(|| layout.frame(memory, frame));
                self.give_frame(said)?;
            }
            // Who awaits a task calls it, as it were.
            if let Some(mut task) = task.filter(|task| task.outermost == frame) {
                while let Some(frame) = task.next(memory, layout) {
                    self.give_frame(layout.frame(memory, frame))?;
                }
            }
            outermost = frame;
            frame = match said {
                Some(said) => said.caller,
                None => layout.caller(memory, frame)?,
            };
        }
        let next = layout.outer_of(memory, entry, frame);
        if next.is_none() {
            self.tell_name(outermost);
        }
        next
    }

    /// Gives a frame of which that is known, with a description of its code object if that is new.
    /// One whose code object is none, or the interpreter's own, is left out.
    fn give_frame(&mut self, said: Option<Frame>) -> Option<()> {
        let (call, Interpreter { module, layout }) = (self.call, self.known);
        let Some(place) = said.and_then(|said| layout.place_of(&said)) else {
            return Some(());
        };
        let described = call.place_of(place.code);
        let check = layout.check(call, place.code, module.code_type, &mut self.codes);
        if check == 0 {
            return Some(());
        }
        let start = match place.copy {
            0 => Some(0),
            copy => call.number(place.code, check ^ mix(copy.into()), || {
                layout.start_of(call, &place)
            }),
        };
        let key = Key::at(described, check);
        let is_known = call.frame_of(key, place.position(start)).ok()?;
        if !is_known {
            // The frame stays without a name if that fails, or without some lines, and is described
            // at the next sample.
            let _ = layout.describe(call, place.code, |part| {
                let told = match part {
                    Part::Code(code, is_whole) => call.describe(code, is_whole),
                    Part::Lines(lines, is_last) => call.more_lines(lines, is_last),
                };
                told.ok()
            });
        }
        Some(())
    }

    /// Tells what the program calls the thread whose outermost frame that is, from time to time.
    fn tell_name(&self, outermost: u64) {
        let thread = self.call.this;
        if !thread.is_own_name_due() {
            return;
        }
        let mut room = [0; names::LONGEST];
        let name = (self.known.layout).thread_name(self.call, outermost, &mut room);
        if let Some(name) = name {
            thread.record_own_name(name);
        }
    }
}
