//! `rsunwind record -p` and `-a`: processes that run already, and what they start from now on; or
//! whatever runs. Their stacks are copied by the kernel ([`crate::copy`]): nothing is put into
//! them, none of their threads is stopped or signalled, and when the collector ends, however it
//! does, so do its events.
//!
//! Not here: which processes are meant ([`crate::target`]).

use super::args::{Args, Trigger};
use super::copying::Copies;
use super::drain::Drain;
use super::error::Error;
use super::events;
use super::inside::{Entered, Wanted};
use super::pace::INTERVAL;
use super::running::{Running, Way};
use super::session::Session;
use crate::copy::Beside;
use crate::cpu_rings::Refusal;
use crate::numbers::plural;
use crate::processes;
use crate::target::{self, Target};
use crate::visible::say;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// So many processes are named.
const NAMED: usize = 5;
/// What there may be nothing to record of.
const IDLE: &str =
    "nothing was recorded: no thread used CPU time (--wall records what they wait for)";

/// Whom to record.
pub(super) enum Whom<'a> {
    /// These, as they were asked for.
    Processes(Vec<Target>, &'a str),
    Everybody,
}

/// What is asked for beside `-p` or `-a` that is for programs that are started, and what to do
/// instead.
pub fn not_for_running(args: &Args) -> Option<&'static str> {
    let all = [
        (
            args.all && args.pid.is_some(),
            "-a records all processes, -p some: leave one of them out",
        ),
        (
            !args.command.is_empty(),
            "-p and -a record what runs already: leave the command out; -d 10s ends the recording after ten seconds",
        ),
        (
            !args.events.is_empty(),
            "-e is for programs that are started: of a process that runs already CPU time is recorded, with --off-cpu or --wall its waits, too",
        ),
        (
            args.wait,
            "--wait is for programs that are started: a recording by -p ends with the last of its processes, by -d or by Ctrl-C, one by -a by these",
        ),
        (
            args.no_follow,
            "--no-follow is for programs that are started: what a process starts is recorded with it",
        ),
        (
            args.max_overhead.is_some(),
            "--max-overhead is for programs that are started: of a process that runs already give a lower -F",
        ),
        (
            args.trigger == Trigger::Timer,
            "timers are a program's own: a process that runs already is sampled by perf events; leave --trigger=timer out",
        ),
    ];
    all.into_iter()
        .find_map(|(asked, why)| asked.then_some(why))
}

/// Records the processes that were asked for until they have ended, the time is over, or a signal
/// says that it is enough. Gives the status to exit with.
///
/// # Errors
/// [`Error::Target`], [`Error::Attach`], and those of any recording.
pub fn run(args: &Args) -> Result<u8, Error> {
    let whom = match &args.pid {
        Some(list) => Whom::Processes(target::find(list)?, list),
        None => Whom::Everybody,
    };
    if args.records_off_cpu() {
        events::try_off_cpu()?;
    }
    let running = Running::prepare(args, &whom)?;
    // Before anything is recorded: it takes its time.
    let wanted = Wanted::of(args.how, whom.targets());
    let beside = (!wanted.is_nobody()).then(Beside::later);
    let pids = whom.pids();
    let all = pids.as_deref().unwrap_or_default();
    let first = all.first().copied().unwrap_or(Pid::from_raw(0));
    let copies = Copies::of_running(args, pids.as_deref(), beside.clone())
        .map_err(|refusal| refused(whom.to_string(), refusal))?;
    // Only now is it certain whose events they are.
    if let Some(other) = whom.another() {
        return Err(refused(other.to_string(), Refusal::ENDED));
    }
    let entered = beside.map(|beside| Entered::enter(args, &running.session, wanted, beside));
    let entered = entered.transpose()?;
    if !args.quiet {
        let mode = match copies.samples_kernel() {
            true => "",
            false => ", in user mode only",
        };
        let programs = match all.len() {
            1 => "program",
            _ => "programs",
        };
        let how = match entered.as_ref().and_then(Entered::said) {
            Some(said) => format!("{said}; the kernel copies all other stacks{mode}"),
            None => format!("the kernel copies the stacks{mode}"),
        };
        say(format_args!(
            "{whom}: {how}; Ctrl-C ends the recording, not the {programs}"
        ));
    }
    let way = Copied {
        copies,
        entered,
        whom: &whom,
    };
    running.record(first, IDLE, way)
}

/// By copies, and by the library in some of the processes.
struct Copied<'a> {
    copies: Copies<'a>,
    entered: Option<Entered>,
    whom: &'a Whom<'a>,
}

impl Way for Copied<'_> {
    fn look(&mut self, drain: &mut Drain, session: &Session) -> io::Result<Option<Duration>> {
        if !self.whom.goes_on() {
            return Ok(None);
        }
        drain.writer().begin()?;
        self.copies.look(drain)?;
        let entered = self.entered.as_mut();
        let after = entered.map(|entered| entered.look(drain, session));
        Ok(Some(
            after
                .transpose()?
                .map_or(INTERVAL, |after| after.min(INTERVAL)),
        ))
    }

    fn finish(mut self, drain: &mut Drain, session: &Session) -> io::Result<()> {
        self.entered.iter_mut().for_each(Entered::disarm);
        self.copies.end();
        self.entered.iter_mut().for_each(Entered::leave);
        let copied = self.copies.finish(drain);
        let finished = self.entered.map(|entered| entered.finish(drain, session));
        copied.and(finished.unwrap_or(Ok(())))
    }
}

fn refused(targets: String, refusal: Refusal) -> Error {
    Error::Attach { targets, refusal }
}

impl Whom<'_> {
    /// What stands in the recording as its command.
    pub(super) fn command(&self) -> Vec<OsString> {
        let Self::Processes(targets, list) = self else {
            return vec!["-a".into()];
        };
        let [one] = &targets[..] else {
            return vec!["-p".into(), list.into()];
        };
        let command = processes::identity(one.pid.as_raw()).command;
        let words = command.split(|byte| *byte == 0);
        let words = words.filter(|word| !word.is_empty());
        words
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect()
    }

    /// Those that were asked for.
    fn targets(&self) -> &[Target] {
        match self {
            Self::Processes(targets, _) => targets,
            Self::Everybody => &[],
        }
    }

    /// Their numbers; none for everybody.
    fn pids(&self) -> Option<Vec<Pid>> {
        match self {
            Self::Processes(targets, _) => Some(targets.iter().map(|target| target.pid).collect()),
            Self::Everybody => None,
        }
    }

    /// One of them whose number another process has by now.
    fn another(&self) -> Option<&Target> {
        match self {
            Self::Processes(targets, _) => targets.iter().find(|target| target.is_another()),
            Self::Everybody => None,
        }
    }

    fn goes_on(&self) -> bool {
        match self {
            Self::Processes(targets, _) => targets.iter().any(Target::goes_on),
            Self::Everybody => true,
        }
    }
}

impl fmt::Display for Whom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Processes(targets, _) = self else {
            return f.write_str("all processes");
        };
        let named = targets.iter().take(NAMED).map(Target::to_string);
        f.write_str(&named.collect::<Vec<_>>().join(", "))?;
        match targets.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {}", plural(more as u64, "other", "others")),
        }
    }
}
