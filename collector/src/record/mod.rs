//! `rsunwind record`: runs a program under the preload library and writes what it and its descendants say about themselves.
//!
//! **Start at [`run`]**: one call per stage. What the samples hold is in [`engine::wire`]; reading a recording is not here.
//!
//! ```text
//! target ─► output ─► session, library ─► launch ─► watch ─┬─► drain ─► writer ─► recording
//!  found?   writable?  shared memory       exec     until  │    ▲
//!                                                   it ends└────┴── segments, written by the profiled processes
//! ```

mod account;
mod args;
mod clock;
mod door;
mod drain;
mod error;
mod events;
mod fallback;
mod forward;
mod hold;
pub mod inherited;
mod launch;
mod library;
mod output;
pub(crate) mod perf_clock;
mod perf_map;
mod petitions;
mod program;
mod publish;
mod rings;
mod seccomp;
mod segment;
mod session;
mod signals;
mod target;
mod units;
mod watch;
mod writer;

use account::Account;
pub use args::Args;
pub use error::Error;
pub(crate) use library::NAME as LIBRARY_NAME;

use drain::Drain;
use events::Event;
use fallback::Fallback;
use forward::Forwarder;
use nix::sys::signal::Signal;
use output::Output;
use petitions::Petitions;
use program::{Program, Status};
use publish::Recorded;
use rings::Rings;
use session::Session;
use signals::Signals;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};
use target::Target;
use watch::Watch;

/// How long a program that was told to end may take before its profile is written without waiting for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Records, and gives the status to exit with: the program's.
///
/// # Errors
/// Any [`Error`]. After [`Error::Recording`] the program has run all the same.
pub fn run(args: &Args) -> Result<u8, Error> {
    refuse_what_is_missing(args)?;
    let target = Target::resolve(&args.command)?;
    let events = events::find(&args.events, args.rate.millihertz.div_ceil(1000))?;
    if args.records_off_cpu() {
        events::try_off_cpu()?;
    }
    let path = args.output.as_deref().unwrap_or(Path::new(output::DEFAULT));
    let output = Output::prepare(path, args.format.as_deref())?;
    let signals =
        Signals::take().map_err(|errno| Error::launch("signals could not be set up", errno))?;
    if !args.quiet {
        tell_of_abandoned_sessions();
    }
    let session = Session::create()?;
    let library = library::hand_out(session.path())?;

    let forwarder = Forwarder::new();
    let environment = environment(args, &events, &target, &session, &library);
    let account = Account::open(args, events);
    let petitions = Petitions::receive(session.path());
    // Before the program starts: an offer that finds nobody is not made again, and only a collector keeps events beside CPU time alive.
    let rings = Rings::listen(session.path());
    let mut fallback = Fallback::new(args, target.obstacle.as_ref());
    let before_exec = |pid| fallback.before_exec(pid);
    let pid = launch::launch(&target, environment, signals.inherited(), before_exec)?;
    let _hearing = petitions.and_then(Petitions::hear);
    fallback.after_exec(pid);
    let program = Program::new(pid);
    let (destination, writer) = output.begin();
    session.link(destination.recording());

    let drain = Drain::new(session.path(), rings, writer);
    let mut watch = Watch::new(&session, drain, fallback, &signals, forwarder, program);
    let end = watch_to_the_end(&mut watch, args.duration);
    let conclusion = watch.conclude();
    let result = conclusion
        .result
        .and_then(|()| account.close(watch.drain(), end));
    let recorded = Recorded::new(destination, watch.drain(), args.rate, result);
    let ended = end.status.map(|status| exit_status(status, end.told));
    let published = match ended {
        Some(status) => {
            // From here on Ctrl-C is for rsunwind itself.
            drop(watch);
            drop(signals);
            recorded.publish(args.quiet, status).map(|()| status)
        }
        None => {
            let published = recorded.publish(args.quiet, 0);
            let status = exit_status(outwait(&mut watch), end.told);
            published.map(|()| status)
        }
    };
    if conclusion.outlived && library.starts_with(session.path()) {
        session.leave_only(&library);
    }
    published
}

fn refuse_what_is_missing(args: &Args) -> Result<(), Error> {
    match &args.pid {
        Some(pid) => Err(Error::AttachUnsupported(pid.clone())),
        None if args.all => Err(Error::SystemWideUnsupported),
        None if args.trigger == args::Trigger::Timer && needs_perf(args) => Err(Error::Event(
            "timers count nothing but CPU time: leave --trigger=timer out, or -e, --off-cpu and --wall".into(),
        )),
        None if args.trigger == args::Trigger::Auto
            && needs_perf(args)
            && seccomp::is_in_force() =>
        {
            Err(Error::Event(
                "a seccomp filter is in force, which may kill who asks for perf events: use a profile that allows perf_event_open, \
                 and --trigger perf to insist"
                    .into(),
            ))
        }
        None => Ok(()),
    }
}

/// Whether what is asked for takes more than timers can give.
fn needs_perf(args: &Args) -> bool {
    !args.events.is_empty() || args.records_off_cpu()
}

fn tell_of_abandoned_sessions() {
    for directory in session::abandoned() {
        let path = directory.display();
        eprintln!(
            "rsunwind: {path} was left by a recording that was killed: rsunwind report {path} shows it, rm -r {path} removes it"
        );
    }
}

/// What the program is started with: ours only if its loader takes it.
fn environment(
    args: &Args,
    events: &[Event],
    target: &Target,
    session: &Session,
    library: &Path,
) -> Vec<OsString> {
    let taken = target
        .obstacle
        .as_ref()
        .is_none_or(|obstacle| !obstacle.refuses_the_library());
    let mut settings = OsString::from(format!(
        "rate={},trigger={},unwind={},depth={},size={},follow={},{}session=",
        args.rate,
        args.trigger.name(),
        args.unwind.name(),
        args.max_depth,
        args.size,
        if args.no_follow { "no" } else { "yes" },
        events::setting(events, args.rate.millihertz.div_ceil(1000)),
    ));
    settings.push(session.path());
    launch::environment(taken.then_some(library), &settings)
}

/// How the program, or the time given to it, ended.
#[derive(Clone, Copy, Debug)]
struct End {
    status: Option<Status>,
    /// It was told to end because its time was over.
    told: bool,
    at_ns: u64,
}

fn watch_to_the_end(watch: &mut Watch<'_>, duration: Option<Duration>) -> End {
    let deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
    let status = watch.until(deadline);
    let mut end = End {
        status,
        told: status.is_none(),
        at_ns: clock::monotonic_ns(),
    };
    if end.told {
        watch.end();
        watch.program().signal(Signal::SIGTERM);
        watch.program().signal(Signal::SIGCONT); // one that is stopped could not obey
        end.status = watch.until(Some(Instant::now() + PATIENCE));
    }
    end
}

/// The profile is written, and the program still runs although it was told to end.
fn outwait(watch: &mut Watch<'_>) -> Status {
    let pid = watch.program().pid();
    eprintln!(
        "rsunwind: the program (pid {pid}) goes on although SIGTERM was sent; waiting for it (kill -KILL {pid} ends it)"
    );
    loop {
        if let Some(status) = watch.until(None) {
            return status;
        }
    }
}

/// Dying of our SIGTERM is what was asked for.
fn exit_status(status: Status, told: bool) -> u8 {
    if told && status.signal() == Some(Signal::SIGTERM as i32) {
        0
    } else {
        status.exit_status()
    }
}
