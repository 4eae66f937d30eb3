//! While the program runs: sleeps, and a few times a second says that it lives and drains the
//! segments; passes signals on when they come.
//!
//! Not here: what is done before and after ([`super::run`]).

use super::args::Args;
use super::copying::Copies;
use super::descendants;
use super::drain::{Drain, Who};
use super::forward::Forwarder;
use super::pace::{INTERVAL, Pace};
use super::program::{Program, Status};
use super::session::Session;
use super::signals::Signals;
use super::turn::Progress;
use crate::numbers::plural;
use crate::visible::say;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// How long descendants that still run are given to notice that the session is over.
const GRACE: Duration = Duration::from_millis(60);

/// Signals that end rsunwind while it takes what is left.
pub(super) const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// What came of a recording.
#[derive(Debug)]
pub struct Conclusion {
    /// Why it broke off, if it did.
    pub result: io::Result<()>,
    /// Whether a process that was recorded may still run.
    pub outlived: bool,
    /// Descendants that run.
    pub running: BTreeSet<u32>,
}

/// A recording under way.
#[derive(Debug)]
pub struct Watch<'a> {
    session: &'a Session,
    drain: Drain,
    copies: Copies<'a>,
    signals: &'a Signals,
    forwarder: Forwarder,
    program: Program,
    next_look: Instant,
    /// When it may be, if somebody new asks for it.
    soonest: Instant,
    pace: Pace<Who>,
    /// Why the recording broke off.
    failure: Option<io::Error>,
    over: bool,
}

impl<'a> Watch<'a> {
    /// Begins to watch a program that has just been started.
    #[must_use]
    pub fn new(
        args: &Args,
        session: &'a Session,
        drain: Drain,
        copies: Copies<'a>,
        signals: &'a Signals,
        forwarder: Forwarder,
        program: Program,
    ) -> Self {
        let is_alone = args.events.is_empty() && !args.records_off_cpu();
        let period = is_alone.then(|| Duration::from_nanos(args.rate.period_ns()));
        Self {
            session,
            drain,
            copies,
            signals,
            forwarder,
            program,
            next_look: Instant::now(),
            soonest: Instant::now(),
            pace: Pace::new(Instant::now(), period, args.can_wait),
            failure: None,
            over: false,
        }
    }

    /// Watches until the program ends, or until the deadline.
    pub fn until(&mut self, deadline: Option<Instant>) -> Option<Status> {
        loop {
            if let Some(status) = self.program.ended() {
                return Some(status);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return None;
            }
            if self.is_looking() && self.next_look <= now {
                let pauses = match self.look() {
                    Progress::Done => self.pauses(now),
                    // Signals have their turn, then it goes on.
                    Progress::Begun => [Duration::ZERO; 2],
                };
                [self.soonest, self.next_look] = pauses.map(|pause| now + pause);
            }
            let look = self.is_looking().then_some(self.next_look);
            let next = look.into_iter().chain(deadline).min();
            // Who is new is looked at soon.
            let offers = self.drain.rings().offers();
            let offers = offers.filter(|_| !self.over && self.soonest < self.next_look);
            if self.signals.wait_or(offers, next) {
                self.next_look = self.soonest;
            }
            self.forwarder.attend(self.signals, &mut self.program);
        }
    }

    /// Goes on, after the program has ended, until no descendant of it runs, until the deadline, or
    /// until a signal comes that asks for the end.
    pub fn until_all_ended(&mut self, deadline: Option<Instant>) {
        while !self.over && deadline.is_none_or(|deadline| Instant::now() < deadline) {
            if self.look() == Progress::Done {
                if descendants::running(self.session.path(), &self.drain).is_empty() {
                    return;
                }
                let next = Instant::now() + self.interval();
                self.signals.wait(Some(next));
            }
            let mut arrivals = std::iter::from_fn(|| self.signals.next());
            if arrivals.any(|arrival| ENDING.contains(&arrival.signal)) {
                return;
            }
        }
    }

    /// The program, to signal it.
    pub const fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// The drain.
    pub const fn drain(&mut self) -> &mut Drain {
        &mut self.drain
    }

    /// Ends the session and takes everything that is left in it.
    pub fn conclude(&mut self) -> Conclusion {
        self.end();
        let running = match self.program.ended() {
            Some(_) => descendants::running(self.session.path(), &self.drain),
            None => BTreeSet::new(),
        };
        let outlived = !running.is_empty() || self.drain.anyone_lives();
        if outlived {
            std::thread::sleep(GRACE);
        }
        let copied = self.copies.finish(&mut self.drain);
        let finished = copied.and_then(|()| self.finish());
        Conclusion {
            result: self.failure.take().map_or(finished, Err),
            outlived,
            running,
        }
    }

    /// Takes what is left, unless a signal comes meanwhile that says that it takes too long.
    fn finish(&mut self) -> io::Result<()> {
        // Those that came in before ended the program, or were sent to it as well.
        let mut late = false;
        while self.drain.finish()? == Progress::Begun {
            let mut arrivals = std::iter::from_fn(|| self.signals.next());
            let told = arrivals
                .by_ref()
                .any(|arrival| ENDING.contains(&arrival.signal));
            arrivals.for_each(drop);
            if told && late {
                let left = plural(self.drain.left() as u64, "program run", "program runs");
                say(format_args!(
                    "interrupted: the last samples of {left} were not taken any more"
                ));
                break;
            }
            late = true;
        }
        Ok(())
    }

    /// Whether there is anything to look at: when the session is over, threads that have not left
    /// the kernel yet go on to fill their rings.
    fn is_looking(&self) -> bool {
        !self.over || (self.failure.is_none() && self.drain.rings().count() > 0)
    }

    fn look(&mut self) -> Progress {
        if self.over {
            self.failure = self.drain.look_at_rings().err();
            return Progress::Done;
        }
        // A control page that cannot be written is no reason to stop: programs look for this
        // process before they doubt it.
        let _ = self.session.beat();
        let looked = self.drain.look();
        let looked =
            looked.and_then(|progress| self.copies.look(&mut self.drain).map(|()| progress));
        looked.unwrap_or_else(|error| {
            self.failure = Some(error);
            self.end();
            Progress::Done
        })
    }

    /// Ends the session: programs disarm.
    pub fn end(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.copies.end();
            self.drain.look_from_outside();
        }
        let _ = self.session.end();
    }

    /// How long until the next look at the soonest, and at the latest.
    fn pauses(&mut self, now: Instant) -> [Duration; 2] {
        let soonest = self.interval();
        let (who, length) = (self.drain.who(), self.drain.writer().length());
        let pause = self.pace.after(now, who, length);
        [soonest, pause.min(self.drain.rings().pause()).max(soonest)]
    }

    fn interval(&self) -> Duration {
        self.drain.rings().pause().min(INTERVAL)
    }
}
