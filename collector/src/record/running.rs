//! What recordings of processes that run already have in common, however their stacks come about:
//! how they are set up, how long they go on, and how they end.

use super::End;
use super::args::Args;
use super::attach::Whom;
use super::drain::Drain;
use super::error::Error;
use super::output::Output;
use super::program::Charged;
use super::publish::Recorded;
use super::rings::Rings;
use super::session::Session;
use super::session_account::Account;
use super::signals::Signals;
use super::watch::ENDING;
use crate::clock;
use crate::kept;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::io;
use std::time::{Duration, Instant};

/// How stacks come about.
pub(super) trait Way {
    /// Takes what has come. Gives after what time to look again, at the latest; none when it is
    /// over.
    ///
    /// # Errors
    /// As write.
    fn look(&mut self, drain: &mut Drain, session: &Session) -> io::Result<Option<Duration>>;

    /// Ends it, and takes all that is left.
    ///
    /// # Errors
    /// As write.
    fn finish(self, drain: &mut Drain, session: &Session) -> io::Result<()>;
}

/// A recording that is set up, of which nothing is there yet.
pub(super) struct Running<'a> {
    args: &'a Args,
    output: Output,
    signals: Signals,
    pub(super) session: Session,
    account: Account,
}

impl<'a> Running<'a> {
    /// Sets it up.
    ///
    /// # Errors
    /// Those of any recording.
    pub(super) fn prepare(args: &'a Args, whom: &Whom<'_>) -> Result<Self, Error> {
        let output = Output::prepare(args.output.as_deref(), args.format.as_deref())?;
        let signals =
            Signals::take().map_err(|errno| Error::launch("signals could not be set up", errno))?;
        if !args.quiet {
            kept::tell();
        }
        let session = Session::create()?;
        allow_many_descriptors();
        let account = Account::open(args, &whom.command(), Vec::new());
        Ok(Self {
            args,
            output,
            signals,
            session,
            account,
        })
    }

    /// Records until the way is over, the time is, or a signal says that it is enough. Gives the
    /// status to exit with; `idle` says why there may be nothing.
    ///
    /// # Errors
    /// Those of any recording.
    pub(super) fn record(
        self,
        first: Pid,
        idle: &'static str,
        mut way: impl Way,
    ) -> Result<u8, Error> {
        let (destination, writer) = self.output.begin(first.as_raw().cast_unsigned());
        let session = &self.session;
        session.link(destination.recording());
        let mut drain = Drain::new(session.path(), Rings::listen(session.path()), writer);
        let deadline = self
            .args
            .duration
            .and_then(|time| Instant::now().checked_add(time));
        let result = watch(&mut way, &mut drain, session, &self.signals, deadline);
        let end = End {
            status: None,
            told: false,
            at_ns: clock::monotonic_ns(),
        };
        let finished = way.finish(&mut drain, session);
        let result = result.and(finished).and_then(|()| {
            let account = self.account;
            account.close(&mut drain, first, end, Charged::default(), None)
        });
        let recorded = Recorded::new(destination, &mut drain, self.args, idle, result);
        // From here on Ctrl-C ends rsunwind's own work.
        let published = recorded.publish(self.args.quiet, 0, &self.signals);
        published.map(|()| 0)
    }
}

/// Each thread takes some for each processor; the limit is our own.
fn allow_many_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Refused, it stays: then a refusal of events says what helps.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Takes what comes until it is over.
fn watch(
    way: &mut impl Way,
    drain: &mut Drain,
    session: &Session,
    signals: &Signals,
    deadline: Option<Instant>,
) -> io::Result<()> {
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(());
        }
        let Some(after) = way.look(drain, session)? else {
            return Ok(());
        };
        let look = now + after;
        signals.wait(Some(deadline.map_or(look, |deadline| deadline.min(look))));
        let mut arrivals = std::iter::from_fn(|| signals.next());
        if arrivals.any(|arrival| ENDING.contains(&arrival.signal)) {
            return Ok(());
        }
    }
}
