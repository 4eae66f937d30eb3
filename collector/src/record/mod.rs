//! `rsunwind record`: runs a program under the preload library and writes what it and its
//! descendants say about themselves; or records processes that run already ([`attach`]).
//!
//! **Start at [`run`]**: one call per stage. What the samples hold is in [`engine::wire`]; reading
//! a recording is not here.
//!
//! ```text
//! executable ─► output ─► session, library ─► launch ─► watch ─┬─► drain ─► writer ─► recording
//!  found?   writable?  shared memory       exec     until  │    ▲
//!                                                   it ends└────┴── segments of profiled programs
//! ```

mod args;
mod attach;
mod children;
mod copying;
mod descendants;
mod drain;
mod error;
mod event_cost;
mod event_requests;
mod events;
mod executable;
mod forward;
mod hold;
pub mod inherited;
mod inside;
mod launch;
pub(crate) mod library;
mod listener;
mod load_cost;
mod naming;
mod output;
mod owners;
mod pace;
mod packing;
mod perf_map_files;
mod price;
mod program;
mod publish;
mod rings;
mod running;
mod segment;
mod session;
mod session_account;
pub(crate) mod signals;
mod switch_cost;
mod thread_cost;
mod turn;
mod watch;
mod writer;

use crate::jit_options;
use crate::kept;
use crate::visible::say;
pub use args::Args;
pub use error::Error;
use session_account::Account;

use crate::clock;
use crate::seccomp;
use copying::Copies;
use drain::Drain;
use engine::wire::file::VERSION;
use event_requests::EventRequests;
use events::Event;
use executable::Executable;
use forward::Forwarder;
use load_cost::Preload;
use nix::sys::signal::Signal;
use output::Output;
use program::{Program, Status};
use publish::Recorded;
use rings::Rings;
use session::Session;
use signals::Signals;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};
use watch::Watch;

/// How long a program that was told to end may take before its profile is written without waiting
/// for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Records, and gives the status to exit with: the program's.
///
/// # Errors
/// Any [`Error`]. After [`Error::Recording`] the program has run all the same.
pub fn run(args: &Args) -> Result<u8, Error> {
    refuse_what_is_missing(args)?;
    if args.records_running() {
        return attach::run(args);
    }
    let executable = Executable::resolve(&args.command)?;
    let events = events::find(&args.events, args.rate.millihertz.div_ceil(1000))?;
    if args.records_off_cpu() {
        events::try_off_cpu()?;
    }
    let output = Output::prepare(args.output.as_deref(), args.format.as_deref())?;
    let signals =
        Signals::take().map_err(|errno| Error::launch("signals could not be set up", errno))?;
    if !args.quiet {
        kept::tell();
    }
    let session = Session::create()?;
    let library = library::hand_out(Some(session.path()), |line| {
        if !args.quiet {
            say(format_args!("{line}"));
        }
    })?;

    let forwarder = Forwarder::new();
    let environment = environment(args, &events, &executable, &session, &library);
    let account = Account::open(args, &args.command, events);
    let requests = EventRequests::receive(session.path());
    // Before the program starts: an offer that finds nobody is not made again, and only a collector
    // keeps events beside CPU time alive.
    let rings = Rings::listen(session.path());
    let mut copies = Copies::new(args, executable.obstacle.as_ref());
    let before_exec = |pid| copies.before_exec(pid);
    let pid = launch::launch(&executable, environment, signals.inherited(), before_exec)?;
    let _serving = requests.and_then(EventRequests::serve);
    copies.after_exec(pid);
    let program = Program::new(pid);
    let (destination, writer) = output.begin(pid.as_raw().cast_unsigned());
    session.link(destination.recording());

    let drain = Drain::new(session.path(), rings, writer);
    let mut watch = Watch::new(args, &session, drain, copies, &signals, forwarder, program);
    let end = watch_to_the_end(&mut watch, args);
    let conclusion = watch.conclude();
    if !conclusion.running.is_empty() && !args.quiet {
        say(descendants::run_on(&conclusion.running));
    }
    let charged = watch.program().charged();
    let preload = Preload {
        library: &library,
        settings: &|place| settings(args, &"1", "", place),
    };
    let result = conclusion
        .result
        .and_then(|()| account.close(watch.drain(), pid, end, charged, Some(preload)));
    let recorded = Recorded::new(
        destination,
        watch.drain(),
        args,
        publish::NOT_LOADED,
        result,
    );
    let left_running = end.status.is_none() && args.detach;
    if left_running && !args.quiet {
        say(format_args!(
            "the program (pid {pid}) runs on, from here on unprofiled"
        ));
    }
    let ended = match end.status {
        None if left_running => Some(0),
        status => status.map(|status| exit_status(status, end.told)),
    };
    let still_needed =
        (conclusion.outlived && library.starts_with(session.path())).then_some(&*library);
    match ended {
        Some(status) => {
            // From here on Ctrl-C is for rsunwind itself: it ends what may take a while.
            drop(watch);
            session.close(still_needed);
            recorded
                .publish(args.quiet, status, &signals)
                .map(|()| status)
        }
        None => {
            let published = recorded.publish(args.quiet, 0, &signals);
            let status = exit_status(outwait(&mut watch), end.told);
            drop(watch);
            session.close(still_needed);
            published.map(|()| status)
        }
    }
}

fn refuse_what_is_missing(args: &Args) -> Result<(), Error> {
    if args.call_graph.is_some() {
        return Err(Error::Event(
            "whole stacks are always recorded: leave --call-graph out (--unwind chooses between sframe, eh_frame and fp)".into(),
        ));
    }
    if let Some(count) = &args.count {
        return Err(Error::Event(format!(
            "-c {count}: a period belongs to its event: -e NAME/period={count}/; of CPU time the rate is given, with -F"
        )));
    }
    if args.records_running() {
        return attach::not_for_running(args).map_or(Ok(()), |why| Err(Error::NotForRunning(why)));
    }
    match args.trigger {
        args::Trigger::Timer if args.max_overhead.is_some() => Err(Error::Event(
            "timers do not show what they cost: leave --trigger=timer out, or --max-overhead and give a lower -F".into(),
        )),
        args::Trigger::Timer if needs_perf(args) => Err(Error::Event(
            "timers count nothing but CPU time: leave --trigger=timer out, or -e, --off-cpu and --wall".into(),
        )),
        args::Trigger::Auto if needs_perf(args) && seccomp::is_in_force() => Err(Error::Event(
            "a seccomp filter is in force, which may kill who asks for perf events: use a profile that allows perf_event_open, \
             and --trigger perf to insist"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// Whether what is asked for takes more than timers can give.
fn needs_perf(args: &Args) -> bool {
    !args.events.is_empty() || args.records_off_cpu()
}

/// What the program is started with: ours only if its loader takes it.
fn environment(
    args: &Args,
    events: &[Event],
    executable: &Executable,
    session: &Session,
    library: &Path,
) -> Vec<OsString> {
    let taken = executable
        .obstacle
        .as_ref()
        .is_none_or(|obstacle| !obstacle.refuses_the_library());
    let others = events::setting(events, args.rate.millihertz.div_ceil(1000));
    let others = others + &event_cost::setting(args);
    let others = match args.notices_programs() {
        true => format!("outside={VERSION}.{},{others}", crate::inside::descriptor()),
        false => others,
    };
    let settings = settings(args, &args.rate, &others, session.path());
    let options = match args.jit_names {
        true => jit_options::variables(),
        false => Vec::new(),
    };
    launch::environment(taken.then_some(library), &settings, &options)
}

/// Settings of programs, with `others` beside those that are always said, each with its comma.
fn settings(args: &Args, rate: &dyn Display, others: &str, place: &Path) -> OsString {
    let mut settings = OsString::from(format!(
        "rate={rate},overhead={},trigger={},signal={},unwind={},depth={},size={},follow={},{others}session=",
        args.share(),
        args.trigger.name(),
        args.signal.name(),
        args.unwind.name(),
        args.max_depth,
        args.size,
        if args.no_follow { "no" } else { "yes" },
    ));
    settings.push(place);
    settings
}

/// How the program, or the time given to it, ended.
#[derive(Clone, Copy, Debug)]
struct End {
    status: Option<Status>,
    /// It was told to end because its time was over.
    told: bool,
    at_ns: u64,
}

fn watch_to_the_end(watch: &mut Watch<'_>, args: &Args) -> End {
    let deadline = |duration| Instant::now().checked_add(duration);
    let deadline = args.duration.and_then(deadline);
    let status = watch.until(deadline);
    if status.is_some() && args.wait {
        watch.until_all_ended(deadline);
    }
    let mut end = End {
        status,
        told: status.is_none(),
        at_ns: clock::monotonic_ns(),
    };
    if end.told {
        watch.end();
        if args.detach {
            return end;
        }
        watch.program().signal(Signal::SIGTERM);
        watch.program().signal(Signal::SIGCONT); // one that is stopped could not obey
        end.status = watch.until(Some(Instant::now() + PATIENCE));
    }
    end
}

/// The profile is written, and the program still runs although it was told to end.
fn outwait(watch: &mut Watch<'_>) -> Status {
    let pid = watch.program().pid();
    say(format_args!(
        "the program (pid {pid}) goes on although SIGTERM was sent; waiting for it (kill -KILL {pid} ends it)"
    ));
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
