//! While the program runs: sleeps, and a few times a second says that it lives and drains the segments; passes signals on when they come.
//!
//! Not here: what is done before and after ([`super::run`]).

use super::drain::Drain;
use super::fallback::Fallback;
use super::forward::Forwarder;
use super::program::{Program, Status};
use super::session::Session;
use super::signals::Signals;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// From one look around to the next: eight wake-ups a second, and well inside the time after which targets doubt that rsunwind lives.
const INTERVAL: Duration = Duration::from_millis(125);
/// The same while perf rings fill fast: below twenty wake-ups a second.
const SHORT_INTERVAL: Duration = Duration::from_millis(60);
/// How long descendants that still run are given to notice that the session is over.
const GRACE: Duration = Duration::from_millis(60);

/// What came of a recording.
#[derive(Debug)]
pub struct Conclusion {
    /// Why it broke off, if it did.
    pub result: io::Result<()>,
    /// Whether a process that was recorded may still run.
    pub outlived: bool,
}

/// A recording under way.
#[derive(Debug)]
pub struct Watch<'a> {
    session: &'a Session,
    drain: Drain,
    fallback: Fallback<'a>,
    signals: &'a Signals,
    forwarder: Forwarder,
    program: Program,
    next_look: Instant,
    /// Why the recording broke off.
    failure: Option<io::Error>,
    over: bool,
}

impl<'a> Watch<'a> {
    /// Begins to watch a program that has just been started.
    #[must_use]
    pub fn new(
        session: &'a Session,
        drain: Drain,
        fallback: Fallback<'a>,
        signals: &'a Signals,
        forwarder: Forwarder,
        program: Program,
    ) -> Self {
        Self {
            session,
            drain,
            fallback,
            signals,
            forwarder,
            program,
            next_look: Instant::now(),
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
            if !self.over && self.next_look <= now {
                self.look();
                self.next_look = now + self.interval();
            }
            let look = (!self.over).then_some(self.next_look);
            self.sleep(look.into_iter().chain(deadline).min());
            self.forwarder.attend(self.signals, &mut self.program);
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
        let outlived = self.drain.anyone_lives();
        if outlived {
            std::thread::sleep(GRACE);
        }
        let copied = self.fallback.finish(&mut self.drain);
        let finished = copied.and(self.drain.finish());
        Conclusion {
            result: self.failure.take().map_or(finished, Err),
            outlived,
        }
    }

    fn look(&mut self) {
        // A control page that cannot be written is no reason to stop: targets look for this process before they doubt it.
        let _ = self.session.beat();
        let looked = self.drain.look();
        if let Err(error) = looked.and_then(|()| self.fallback.look(&mut self.drain)) {
            self.failure = Some(error);
            self.end();
        }
    }

    /// Ends the session: targets disarm.
    pub fn end(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.fallback.end();
            self.drain.look_from_outside();
        }
        let _ = self.session.end();
    }

    fn interval(&self) -> Duration {
        if self.drain.rings().are_busy() {
            SHORT_INTERVAL
        } else {
            INTERVAL
        }
    }

    fn sleep(&self, until: Option<Instant>) {
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        // An interrupted or refused poll is a short sleep.
        let _ = poll(
            &mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)],
            timeout,
        );
    }
}
