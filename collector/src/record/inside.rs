//! `rsunwind record -p --how inside`: a library of ours is brought into the processes, by which
//! their threads unwind themselves, and taken away at the end ([`crate::inside`]).
//!
//! Not here: the other way, copies ([`super::attach`]).

use super::End;
use super::args::Args;
use super::attach::{Whom, allow_many_descriptors};
use super::drain::Drain;
use super::error::Error;
use super::output::Output;
use super::program::Charged;
use super::publish::Recorded;
use super::rings::Rings;
use super::session::Session;
use super::session_account::Account;
use super::signals::Signals;
use super::turn::Progress;
use super::watch::ENDING;
use crate::clock;
use crate::inside::{Departure, Inside, Refusal, Settings};
use crate::kept;
use crate::numbers::plural;
use crate::target::Target;
use crate::visible::say;
use std::io;
use std::time::{Duration, Instant};

/// From one look to the next: threads that were born meanwhile are armed then.
const INTERVAL: Duration = Duration::from_millis(20);
/// Where there are many threads, they are looked for this many times as rarely.
const MANY: usize = 200;
/// Samples are taken out of the segments this often.
const DRAIN: Duration = Duration::from_millis(120);
const IDLE: &str = "nothing was recorded";

/// Records until the processes have ended, the time is over, or a signal says that it is enough.
/// Gives the status to exit with.
///
/// # Errors
/// [`Error::Inside`], and those of any recording.
pub fn run(args: &Args, whom: &Whom<'_>, targets: &[Target]) -> Result<u8, Error> {
    let output = Output::prepare(args.output.as_deref(), args.format.as_deref())?;
    let signals =
        Signals::take().map_err(|errno| Error::launch("signals could not be set up", errno))?;
    if !args.quiet {
        kept::tell();
    }
    let session = Session::create()?;
    allow_many_descriptors();
    let account = Account::open(args, &whom.command(), Vec::new());
    let settings = settings(args, &session);
    let mut entered = enter(targets, &settings)?;
    let armed = arm(targets, &mut entered);
    if let Err(error) = armed {
        leave(entered);
        return Err(error);
    }
    if !args.quiet {
        let threads: usize = entered.iter().map(|inside| inside.threads().0).sum();
        let held = entered.iter().map(Inside::held).max().unwrap_or_default();
        say(format_args!(
            "{}: {}, in user mode only; one was held for {:.1} ms; Ctrl-C ends the recording, not the program",
            whom,
            plural(
                threads as u64,
                "thread unwinds itself",
                "threads unwind themselves"
            ),
            held.as_secs_f64() * 1e3,
        ));
    }
    let first = targets.first().map_or(0, |target| target.pid.as_raw());
    let (destination, writer) = output.begin(first.cast_unsigned());
    session.link(destination.recording());
    let mut drain = Drain::new(session.path(), Rings::listen(session.path()), writer);
    let deadline = args
        .duration
        .and_then(|time| Instant::now().checked_add(time));
    let result = watch(&mut entered, &mut drain, &session, &signals, deadline);
    let end = End {
        status: None,
        told: false,
        at_ns: clock::monotonic_ns(),
    };
    leave(entered);
    let _ = session.end();
    let mut finish = || {
        while drain.finish()? == Progress::Begun {}
        Ok(())
    };
    let result = result.and(finish());
    let first = nix::unistd::Pid::from_raw(first);
    let result =
        result.and_then(|()| account.close(&mut drain, first, end, Charged::default(), None));
    let recorded = Recorded::new(destination, &mut drain, args, IDLE, result);
    // From here on Ctrl-C ends rsunwind's own work.
    let signals = (!recorded.is_for_export()).then_some(signals);
    let published = recorded.publish(args.quiet, 0, signals.as_ref());
    published.map(|()| 0)
}

fn settings(args: &Args, session: &Session) -> Settings {
    let millihertz = args.rate.millihertz;
    let text = format!(
        "session={},rate={}.{:03},depth={},unwind={},size={},signal=urg,kernel=no",
        session.path().display(),
        millihertz / 1000,
        millihertz % 1000,
        args.max_depth,
        args.unwind.name(),
        args.size,
    );
    Settings {
        text,
        period_ns: args.rate.period_ns(),
    }
}

fn refused(target: &Target, refusal: Refusal) -> Error {
    Error::Inside {
        target: target.to_string(),
        refusal,
    }
}

/// Into all of them, or none.
fn enter(targets: &[Target], settings: &Settings) -> Result<Vec<Inside>, Error> {
    let mut entered = Vec::new();
    for target in targets {
        match Inside::enter(target.pid.as_raw().cast_unsigned(), settings) {
            Ok(inside) => entered.push(inside),
            Err(refusal) => {
                leave(entered);
                return Err(refused(target, refusal));
            }
        }
    }
    Ok(entered)
}

fn arm(targets: &[Target], entered: &mut [Inside]) -> Result<(), Error> {
    for (inside, target) in entered.iter_mut().zip(targets) {
        inside.arm().map_err(|refusal| refused(target, refusal))?;
    }
    Ok(())
}

/// Takes the library away, from all; sampling ends at once.
fn leave(mut entered: Vec<Inside>) {
    entered.iter_mut().for_each(Inside::disarm);
    for inside in entered {
        let (pid, blocked) = (inside.pid(), inside.threads().1);
        match inside.leave() {
            Ok(Departure::Gone | Departure::Over) => {}
            Err(Refusal::Ended) => {}
            Err(refusal) => say(format_args!(
                "process {pid}: our library stays in it, and does nothing: {refusal}; the next record -p --how inside takes it away"
            )),
        }
        if blocked > 0 {
            let threads = plural(blocked as u64, "thread blocks", "threads block");
            say(format_args!(
                "process {pid}: {threads} SIGURG, or wait under another mask or a filter, and {} not sampled",
                if blocked == 1 { "was" } else { "were" }
            ));
        }
    }
}

/// Takes what comes until it is over.
fn watch(
    entered: &mut [Inside],
    drain: &mut Drain,
    session: &Session,
    signals: &Signals,
    deadline: Option<Instant>,
) -> io::Result<()> {
    let mut next_drain = Instant::now();
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(());
        }
        let mut many = false;
        let mut any = false;
        for inside in entered.iter_mut() {
            if inside.is_there() {
                any = true;
                many |= inside.threads().0 > MANY;
                // Refused for a thread that is born later, it is not sampled.
                let _ = inside.arm();
            }
        }
        if !any {
            return Ok(());
        }
        // A control page that cannot be written is no reason to stop.
        let _ = session.beat();
        if now >= next_drain {
            let _ = drain.look()?;
            next_drain = now + DRAIN;
        }
        let look = now + if many { DRAIN } else { INTERVAL };
        signals.wait(Some(deadline.map_or(look, |deadline| deadline.min(look))));
        let mut arrivals = std::iter::from_fn(|| signals.next());
        if arrivals.any(|arrival| ENDING.contains(&arrival.signal)) {
            return Ok(());
        }
    }
}
