//! What a thread's last walk read, so that the next one need not walk what has not changed.
//!
//! A plain step is a function of the frame it starts from (pc, stack pointer, frame pointer), of
//! the rules (their generation), and of two words of the stack: the return address and the saved
//! frame pointer. So when a walk comes to a frame that the last one came to, too, and those words
//! of the next frame are what they were, so is the next frame: that is seen by two loads from known
//! places, which wait for nothing, instead of by a look-up and loads that wait for each other. The
//! return address alone would not do: the same one can stand at the same place below another frame
//! of the caller, which only the saved frame pointer tells.
//!
//! ```text
//!   kept:  | root … | met … | changed since |          made:  | leaf's caller … |
//!          0        low     high                               0                 next
//!          the last walk, outermost first                      this walk, as it goes
//! ```
//!
//! What is unchanged is nearly always the outer part, which therefore stays in its place. Steps
//! that are more than plain are always taken anew: they may read anything. But for frames of a
//! language that says which two words tell them, or that there is nothing to tell ([`Steady`]):
//! what it gave is one of those remembered, between its native frame and the next.
//!
//! [`Steady`]: crate::language::Steady

mod known;
mod worth;

pub(crate) use known::Bounds;
pub use known::Known;
use worth::Worth;

use crate::frame_buffer::FrameBuffer;
use crate::rule::{Kind, UnwindRule};

/// The frame that a walk goes on from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reused {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// Its rule, if that is known to be more than plain.
    pub(crate) rule: Option<UnwindRule>,
}

/// See the module. One thread's, and of one walk at a time.
#[derive(Debug)]
pub struct LastWalk<'m> {
    kept: &'m mut [Known],
    /// In a circle: of more frames the outermost stay.
    made: &'m mut [Known],
    /// The index plus one of the next of those kept that the walk can meet.
    ahead: usize,
    /// So many of those kept, the outermost, have not been fetched ahead of time.
    unfetched: usize,
    next: usize,
    /// Those of `kept` that this walk came to since the last one that is in `made`.
    low: usize,
    high: usize,
    /// The stack pointer of the last frame.
    sp: u64,
    /// Whether a step to the next frame begins at none of these.
    is_cut: bool,
    is_round: bool,
    /// Whether this walk is remembered.
    is_on: bool,
    worth: Worth,
    /// How often `made` was filled.
    rounds: u32,
    /// Of the rules that led to those kept.
    generation: u64,
    /// That in which frames of languages among them were told.
    moment: u64,
    /// How many are kept.
    length: usize,
    /// How many of this walk's were found unchanged, and how many of them behind the last one that
    /// was walked.
    reused: usize,
    run: usize,
    /// How many walks have begun.
    number: u64,
    /// How many frames there were in all when the last one was remembered, if it is cut.
    cut_at: u32,
    /// Whether the outermost one kept was the outermost of its walk.
    is_whole: bool,
    /// See [`LastWalk::unchanged`].
    unchanged: usize,
    /// The rule of the outermost one kept, or [`Kind::Absent`]: it led to no frame that is kept.
    end: UnwindRule,
    /// Likewise of the last frame of this walk.
    new_end: UnwindRule,
}

/// Frames of memory that are worth having: 1,024 are remembered, whatever the stack's depth. 60
/// KiB, of which a walk touches as much as it takes.
pub const MEMORY: usize = 1280;

/// So often a walk may fill its own part of the memory: one with more new frames than that, 2,048,
/// is not remembered. To remember a frame costs as much as to walk it, in a deep recursion.
const ROUNDS: u32 = 8;

/// Frames of the last walk that are fetched for each that this one adds.
const FETCHED: usize = 16;

const NO_RULE: UnwindRule = UnwindRule::from_bits(0);

impl<'m> LastWalk<'m> {
    /// Nothing yet; in memory of which four fifths are for what is remembered, and the rest for
    /// what one walk adds to it.
    #[must_use]
    pub fn new(memory: &'m mut [Known]) -> Self {
        let made = memory.len() / 5;
        let kept = memory.len().wrapping_sub(made);
        let (kept, made) = memory.split_at_mut_checked(kept).unwrap_or_default();
        Self {
            kept,
            made,
            ahead: 0,
            unfetched: 0,
            next: 0,
            low: 0,
            high: 0,
            sp: 0,
            is_cut: true,
            is_round: false,
            is_on: false,
            worth: Worth::new(),
            rounds: 0,
            generation: 0,
            moment: 0,
            length: 0,
            reused: 0,
            run: 0,
            number: 0,
            cut_at: 0,
            is_whole: false,
            unchanged: 0,
            end: NO_RULE,
            new_end: NO_RULE,
        }
    }

    /// For a walk that neither knows of another nor is remembered.
    #[must_use]
    pub fn none() -> Self {
        Self::new(&mut [])
    }

    /// Forgets all: the thread, or its stack, is another.
    pub fn forget(&mut self) {
        self.length = 0;
    }

    /// How many frames of the latest walk were not walked, but found unchanged.
    #[must_use]
    pub const fn reused(&self) -> usize {
        self.reused
    }

    /// The number of the latest walk (0: there is no memory for any), and how many of its outermost
    /// frames were also those of the walk before, at least, if both could keep all their frames.
    #[must_use]
    pub const fn unchanged(&self) -> (u64, usize) {
        (self.number, self.unchanged)
    }

    /// A walk by rules of that generation begins, and at that moment: see
    /// [`Languages::moment`](crate::language::Languages::moment).
    pub(crate) fn begin(&mut self, generation: u64, moment: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.length = 0;
        }
        if self.moment != moment {
            self.moment = moment;
            let kept = self.kept.get_mut(..self.length).unwrap_or_default();
            let told = kept.iter_mut().filter(|known| known.is_told());
            told.for_each(Known::cut);
        }
        (self.low, self.high, self.ahead) = (0, 0, self.length);
        self.unfetched = self.length;
        (self.next, self.is_round, self.rounds) = (0, false, 0);
        self.cut_at = 0;
        (self.sp, self.is_cut, self.is_on) =
            (0, true, !self.made.is_empty() && self.worth.may_pay());
        (self.new_end, self.reused, self.unchanged) = (NO_RULE, 0, 0);
        self.number = self.number.wrapping_add(u64::from(!self.made.is_empty()));
    }

    /// Whether the walk under way is to be remembered, so far.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether a frame that the walk has come to is one that the last walk came to: its stack
    /// pointer, pc and frame pointer.
    #[inline]
    fn meets(&mut self, frame: [u64; 3]) -> bool {
        let [sp, ..] = frame;
        // Frames of two walks lie about as close. Which of them lie between is not to be foreseen,
        // so two are passed without a branch.
        for _ in 0..2 {
            let is_passed = self.next_sp() < sp;
            self.ahead = self.ahead.wrapping_sub(usize::from(is_passed));
        }
        match self.kept.get(self.ahead.wrapping_sub(1)) {
            Some(known) if known.sp() == sp => known.is_same(frame),
            Some(known) => known.sp() < sp && self.meets_behind(frame),
            None => false,
        }
    }

    /// The stack pointer of the next of those kept that can be met.
    #[inline]
    fn next_sp(&self) -> u64 {
        let next = self.kept.get(self.ahead.wrapping_sub(1));
        next.map_or(u64::MAX, Known::sp)
    }

    /// Whether it is one of those further out.
    #[cold]
    fn meets_behind(&mut self, frame: [u64; 3]) -> bool {
        let [sp, ..] = frame;
        let inner = self.kept.get(..self.ahead).unwrap_or_default();
        self.ahead = inner.partition_point(|known| known.sp() >= sp);
        let known = self.kept.get(self.ahead.wrapping_sub(1));
        known.is_some_and(|known| known.is_same(frame))
    }

    /// Whether the last frame is remembered.
    pub(crate) const fn is_after_one(&self) -> bool {
        self.is_on && !self.is_cut
    }

    /// The walk has come to a frame by that rule, which is in `frames` already: the outermost one
    /// that is unchanged behind it, if the last walk came to it, too. If not, it is remembered.
    ///
    /// # Signal safety
    /// Loads from the stack within the bounds.
    #[inline]
    pub(crate) fn come(
        &mut self,
        [sp, pc, fp]: [u64; 3],
        rule: UnwindRule,
        bounds: Bounds,
        frames: &mut FrameBuffer<'_>,
    ) -> Option<Reused> {
        if self.meets([sp, pc, fp]) {
            return Some(self.follow(rule, bounds, frames));
        }
        self.add(Known::new(sp, pc, fp, rule));
        None
    }

    /// Adds a frame that the last walk did not come to.
    #[inline]
    pub(crate) fn add(&mut self, mut frame: Known) {
        if self.is_cut {
            frame.cut();
            self.is_cut = false;
        }
        if self.high != 0 && self.replace(&frame) {
            return;
        }
        self.order(frame.sp());
        self.make(frame);
        self.fetch();
    }

    /// Has the processor fetch what is to be compared if the walk meets the last one soon.
    #[inline]
    fn fetch(&mut self) {
        let from = self.unfetched.saturating_sub(FETCHED);
        known::fetch(self.kept.get(from..self.unfetched).unwrap_or_default());
        self.unfetched = from;
    }

    /// Sees to it that a stack pointer comes behind all those before.
    #[inline]
    fn order(&mut self, sp: u64) {
        if sp <= self.sp {
            // To another stack and back: what is in order is remembered.
            (self.next, self.is_round) = (0, false);
        }
        self.sp = sp;
        self.new_end = NO_RULE;
    }

    #[inline]
    fn make(&mut self, frame: Known) {
        if let Some(place) = self.made.get_mut(self.next) {
            *place = frame;
            self.next = self.next.wrapping_add(1);
        } else if let Some(place) = self.made.first_mut() {
            *place = frame;
            (self.next, self.is_round) = (1, true);
            self.rounds = self.rounds.wrapping_add(1);
            self.is_on &= self.rounds < ROUNDS;
        }
    }

    /// Puts a frame in the place of the one that was there behind those that were met, if it lies
    /// at the same place of the stack: often nothing is new but a register's value. If not, those
    /// that were met lead to others than they did, and are remembered as if they had been walked.
    #[cold]
    fn replace(&mut self, frame: &Known) -> bool {
        let index = self.low.wrapping_sub(1);
        match self.kept.get_mut(index) {
            Some(place) if place.sp() == frame.sp() => {
                *place = *frame;
                (self.low, self.run) = (index, 0);
                self.order(frame.sp());
                true
            }
            _ => {
                self.leave();
                false
            }
        }
    }

    fn leave(&mut self) {
        for index in (self.low..self.high).rev() {
            let known = self.kept.get(index).copied();
            self.make(known.unwrap_or_default());
        }
        (self.low, self.high) = (0, 0);
    }

    /// Goes from the frame that was met, by that rule, and which is in `frames` already, to the
    /// outermost one that is unchanged.
    ///
    /// # Signal safety
    /// Loads from the stack within the bounds.
    #[inline(never)]
    fn follow(&mut self, rule: UnwindRule, bounds: Bounds, frames: &mut FrameBuffer<'_>) -> Reused {
        if self.high != 0 && self.low != self.ahead {
            self.leave();
        }
        if self.high == 0 {
            self.high = self.ahead;
        }
        let is_cut = core::mem::take(&mut self.is_cut);
        let mut low = self.ahead.wrapping_sub(1);
        if let Some((met, outer)) = self.kept.get_mut(..=low).and_then(<[_]>::split_last_mut) {
            // Its callee is another one, by whose rule the words stand elsewhere.
            met.led_by(rule);
            if is_cut {
                met.cut();
            }
            let sp = met.sp();
            let mut count = known::copy_unchanged(outer, &bounds, frames.room());
            // A language's frame goes with the frame that it leads to.
            let last = outer
                .get(outer.len().wrapping_sub(count)..)
                .and_then(<[_]>::first);
            if last.is_some_and(Known::is_told) {
                count = count.wrapping_sub(1);
            }
            frames.fill(count);
            low = low.wrapping_sub(count);
            if frames.room().is_empty() {
                low = Self::follow_on(outer, low, &bounds, frames);
            }
            self.order(sp);
        }
        let unchanged = self.ahead.wrapping_sub(low).wrapping_sub(1);
        self.reused = self.reused.wrapping_add(unchanged);
        self.run = unchanged;
        let last = self.kept.get(low).copied().unwrap_or_default();
        (self.low, self.ahead) = (low, low);
        self.sp = last.sp();
        let is_end = low == 0 && self.end.kind() != Kind::Absent;
        Reused {
            pc: last.frame().pc.0,
            sp: last.sp(),
            fp: last.fp(),
            rule: is_end.then_some(self.end),
        }
    }

    /// The same where the frames' room is a circle by now.
    #[cold]
    fn follow_on(
        outer: &[Known],
        mut low: usize,
        bounds: &Bounds,
        frames: &mut FrameBuffer<'_>,
    ) -> usize {
        while let Some(known) = outer.get(low.wrapping_sub(1)) {
            let next = outer.get(low.wrapping_sub(2));
            if !known.holds(bounds) || known.is_told() && !next.is_some_and(|it| it.holds(bounds)) {
                break;
            }
            if !frames.push_frame(known.frame()) {
                break;
            }
            low = low.wrapping_sub(1);
        }
        match outer.get(low) {
            // What it leads to has no room: the walk ends behind its native frame.
            Some(known) if known.is_told() => low.wrapping_add(1),
            _ => low,
        }
    }

    /// The walk's next step, by that rule, is more than a plain one. So many frames were visited.
    pub(crate) fn interrupt(&mut self, rule: UnwindRule, visited: u32) {
        // What code looks like that no module is known for: one may be by the next walk. The cache
        // knows whether such a rule is kept.
        let may_be_a_guess = matches!(
            rule.kind(),
            Kind::FramePointer | Kind::Signal | Kind::GoSwitch
        );
        if !self.is_cut && !may_be_a_guess {
            self.new_end = rule;
        }
        if !self.is_cut {
            (self.is_cut, self.cut_at) = (true, visited);
        }
    }

    /// The step that was just said to be more than a plain one is like one, after all.
    pub(crate) const fn resume(&mut self) {
        self.is_cut = false;
    }

    /// The walk's frames are others than those remembered, at last.
    pub(crate) const fn part(&mut self) {
        (self.is_whole, self.unchanged) = (false, 0);
    }

    /// The walk is over, and the next may meet it. So many frames were visited.
    #[inline]
    pub(crate) fn finish(&mut self, visited: u32) {
        if !self.is_on {
            self.is_whole = false;
            if self.rounds != 0 {
                self.length = 0; // it has changed what was kept
            }
            return;
        }
        self.worth.count(self.reused, visited as usize);
        let was_whole = self.is_whole;
        self.is_whole = !self.is_cut || self.cut_at == visited;
        if was_whole && self.is_whole && self.low == 0 && self.high != 0 {
            self.unchanged = self.run;
        }
        if self.low != 0 {
            self.leave();
        }
        self.length = self.high;
        if self.next != 0 {
            self.keep_made();
        }
        self.end = self.new_end;
    }

    /// Puts what was made behind what is kept.
    fn keep_made(&mut self) {
        let (newer, older) = self.made.split_at_checked(self.next).unwrap_or_default();
        Self::keep(self.kept, &mut self.length, newer);
        if self.is_round {
            Self::keep(self.kept, &mut self.length, older);
        }
    }

    /// Puts frames, the outermost last, behind those that are kept.
    fn keep(kept: &mut [Known], length: &mut usize, made: &[Known]) {
        let free = kept.get_mut(*length..).unwrap_or_default();
        let pairs = free.iter_mut().zip(made.iter().rev());
        let count = pairs.map(|(place, frame)| *place = *frame).count();
        *length = length.wrapping_add(count);
    }
}
