//! Whether one thread is on a CPU, as the kernel's records tell: what is paired into an absence,
//! with the stack at which it began.
//!
//! ```text
//! leaves ─ out ───────── back      a sample with the stack, the switch itself, the switch back
//!          └── absence ──┘
//! ```
//!
//! Records can be lost where a ring was full: an absence whose end was lost, or may have been, is
//! counted and left out, since nobody knows how long it was; one whose stack was lost, or was never
//! taken, has none.
//!
//! Not here: whose records these are ([`crate::copy`]), and what becomes of absences
//! ([`super::Switches`]).

/// Time off the CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absence<S> {
    /// When it began and ended (`CLOCK_MONOTONIC`, ns).
    pub(crate) since_ns: u64,
    pub(crate) until_ns: u64,
    /// The thread could have run on.
    pub(crate) preempted: bool,
    /// Where it was.
    pub(crate) stack: Option<S>,
}

/// Where a thread is.
#[derive(Debug)]
enum Place<S> {
    On,
    /// Since when, whether it could run, and its stack.
    Off(u64, bool, Option<S>),
}

/// A thread's comings and goings.
#[derive(Debug)]
pub(crate) struct Presence<S> {
    place: Place<S>,
    /// The stack taken just before the switch, and when.
    leaving: Option<(u64, S)>,
    /// Records were lost since it went.
    doubtful: bool,
    /// That it is away was seen by others, a moment later: it may have been on a CPU.
    presumed: bool,
    /// Absences whose end was lost, or may have been.
    unpaired: u64,
}

impl<S> Presence<S> {
    /// Of a thread that runs.
    pub(crate) const fn running() -> Self {
        Self {
            place: Place::On,
            leaving: None,
            doubtful: false,
            presumed: false,
            unpaired: 0,
        }
    }

    /// Of a thread that was found asleep then.
    pub(crate) fn asleep(time_ns: u64) -> Self {
        Self {
            place: Place::Off(time_ns, false, None),
            presumed: true,
            ..Self::running()
        }
    }

    /// Of a thread that was made at that time, and waits for a CPU to run on.
    pub(crate) fn made(time_ns: u64) -> Self {
        Self {
            place: Place::Off(time_ns, true, None),
            ..Self::running()
        }
    }

    /// It was found asleep, and that is its stack since then.
    pub(crate) fn stands(&mut self, time_ns: u64, stack: S) {
        if self.presumed {
            self.place = Place::Off(time_ns, false, Some(stack));
        }
    }

    /// It is about to go, and stands there.
    pub(crate) fn leaves(&mut self, time_ns: u64, stack: S) {
        self.miss();
        self.leaving = Some((time_ns, stack));
    }

    /// It goes; `preempted` says that it could run on.
    pub(crate) fn out(&mut self, time_ns: u64, preempted: bool) {
        self.miss();
        let stack = self.leaving.take().map(|(_, stack)| stack);
        self.place = Place::Off(time_ns, preempted, stack);
        self.doubtful = false;
    }

    /// Records were lost, perhaps its own.
    pub(crate) const fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// It is back.
    pub(crate) fn back(&mut self, time_ns: u64) -> Option<Absence<S>> {
        let leaving = self.leaving.take();
        self.presumed = false;
        if std::mem::take(&mut self.doubtful) {
            self.miss();
            return None;
        }
        let (since_ns, preempted, stack) = match std::mem::replace(&mut self.place, Place::On) {
            Place::Off(since_ns, preempted, stack) => (since_ns, preempted, stack),
            // The switch itself was lost.
            Place::On => leaving.map(|(time_ns, stack)| (time_ns, false, Some(stack)))?,
        };
        Some(Absence {
            since_ns,
            until_ns: time_ns.max(since_ns),
            preempted,
            stack,
        })
    }

    /// Absences whose end was lost, or may have been.
    pub(crate) const fn unpaired(&self) -> u64 {
        self.unpaired
    }

    /// It must have been back if it was away.
    fn miss(&mut self) {
        if let Place::Off(..) = self.place {
            self.place = Place::On;
            self.unpaired += u64::from(!std::mem::take(&mut self.presumed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absence(
        since_ns: u64,
        until_ns: u64,
        preempted: bool,
        stack: Option<char>,
    ) -> Option<Absence<char>> {
        Some(Absence {
            since_ns,
            until_ns,
            preempted,
            stack,
        })
    }

    #[test]
    fn an_absence_has_the_stack_taken_before_it() {
        let mut thread = Presence::running();
        thread.leaves(10, 'a');
        thread.out(11, false);
        assert_eq!(thread.back(50), absence(11, 50, false, Some('a')));
        thread.leaves(60, 'b');
        thread.out(61, true);
        assert_eq!(thread.back(62), absence(61, 62, true, Some('b')));
        assert_eq!((thread.back(63), thread.unpaired()), (None, 0));
    }

    #[test]
    fn a_new_thread_waits_for_a_cpu() {
        let mut thread = Presence::<char>::made(5);
        assert_eq!(thread.back(9), absence(5, 9, true, None));
        assert_eq!(thread.unpaired(), 0);
    }

    #[test]
    fn a_thread_that_was_found_asleep_is_so_until_it_is_back() {
        let mut thread = Presence::<char>::asleep(5);
        assert_eq!(thread.back(9), absence(5, 9, false, None));
        // Its stack is read a moment later.
        let mut thread = Presence::asleep(5);
        thread.stands(6, 'a');
        assert_eq!(thread.back(9), absence(6, 9, false, Some('a')));
        // It was seen when it had gone already.
        let mut thread = Presence::asleep(5);
        thread.leaves(6, 'a');
        thread.out(7, false);
        assert_eq!(thread.back(9), absence(7, 9, false, Some('a')));
        assert_eq!(thread.unpaired(), 0);
    }

    #[test]
    fn without_its_sample_an_absence_has_no_stack() {
        // As where samples are throttled.
        let mut thread = Presence::<char>::running();
        thread.out(20, false);
        assert_eq!(thread.back(30), absence(20, 30, false, None));
    }

    #[test]
    fn a_lost_switch_leaves_what_its_sample_says() {
        let mut thread = Presence::running();
        thread.leaves(10, 'a');
        assert_eq!(thread.back(50), absence(10, 50, false, Some('a')));
    }

    #[test]
    fn an_absence_whose_end_was_lost_is_counted_and_not_guessed() {
        let mut thread = Presence::running();
        thread.leaves(10, 'a');
        thread.out(11, false);
        thread.leaves(80, 'b');
        thread.out(81, false);
        assert_eq!(thread.back(90), absence(81, 90, false, Some('b')));
        assert_eq!(thread.unpaired(), 1);
        // Its sample was lost as well.
        thread.out(100, false);
        thread.out(200, true);
        assert_eq!(thread.back(210), absence(200, 210, true, None));
        assert_eq!(thread.unpaired(), 2);
    }

    #[test]
    fn the_stack_of_one_absence_is_never_another_ones() {
        let mut thread = Presence::running();
        thread.leaves(10, 'a'); // its switch and the way back were lost
        thread.leaves(40, 'b');
        thread.out(41, false);
        assert_eq!(thread.back(50), absence(41, 50, false, Some('b')));
        thread.out(60, false);
        assert_eq!(thread.back(70), absence(60, 70, false, None));
    }

    #[test]
    fn where_records_were_lost_an_absence_may_have_been_several() {
        let mut thread = Presence::running();
        thread.leaves(10, 'a');
        thread.out(11, false);
        thread.doubt();
        assert_eq!((thread.back(90), thread.unpaired()), (None, 1));
        // What begins behind the gap is whole.
        thread.leaves(100, 'b');
        thread.out(101, false);
        assert_eq!(thread.back(110), absence(101, 110, false, Some('b')));
        // A thread that was on a CPU is known to have gone only then.
        thread.doubt();
        thread.out(120, true);
        assert_eq!(thread.back(130), absence(120, 130, true, None));
        assert_eq!(thread.unpaired(), 1);
    }

    #[test]
    fn time_does_not_run_backwards() {
        let mut thread = Presence::<char>::running();
        thread.out(20, false);
        assert_eq!(thread.back(19), absence(20, 20, false, None));
    }
}
