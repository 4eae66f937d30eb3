//! `rsunwind record -p --how inside`: a library of ours is brought into the processes, by which
//! their threads unwind themselves, and taken away at the end ([`crate::inside`]).
//!
//! Not here: the other way, copies ([`super::attach`]).

use super::args::Args;
use super::attach::Whom;
use super::drain::Drain;
use super::error::Error;
use super::running::{Running, Way};
use super::session::Session;
use super::turn::Progress;
use crate::clock;
use crate::inside::{Departure, Inside, Lacks, Refusal, Settings};
use crate::numbers::plural;
use crate::processes;
use crate::recording::records::Records;
use crate::target::Target;
use crate::visible::say;
use engine::wire::chunk::{ChunkInfo, FROM_SWITCHES};
use nix::unistd::Pid;
use std::io;
use std::time::{Duration, Instant};

/// From one look to the next: threads that were born meanwhile are armed then.
const INTERVAL: Duration = Duration::from_millis(20);
/// Where there are many threads, they are looked for this many times as rarely.
const MANY: usize = 200;
/// Samples are taken out of the segments this often.
const DRAIN: Duration = Duration::from_millis(120);
/// For so long it is waited at the beginning for threads that wait for a processor.
const ARMING: Duration = Duration::from_millis(500);
/// No thread should be held for longer, if there is a processor for it.
const LONG: Duration = Duration::from_millis(20);
const IDLE: &str = "nothing was recorded";

/// Records until the processes have ended, the time is over, or a signal says that it is enough.
/// Gives the status to exit with.
///
/// # Errors
/// [`Error::Inside`], and those of any recording.
pub fn run(args: &Args, whom: &Whom<'_>, targets: &[Target]) -> Result<u8, Error> {
    let running = Running::prepare(args, whom)?;
    let settings = settings(args, &running.session);
    let mut entered = enter(targets, &settings)?;
    let armed = arm(targets, &mut entered);
    if let Err(error) = armed {
        leave(entered);
        return Err(error);
    }
    if !args.quiet {
        let threads: usize = entered.iter().map(Inside::threads).sum();
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
    let first = targets
        .first()
        .map_or(Pid::from_raw(0), |target| target.pid);
    let way = Entered {
        entered,
        next_drain: Instant::now(),
    };
    running.record(first, IDLE, way)
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
        let began = Instant::now();
        let mut armed = inside.arm();
        // Of one that waits for a processor it cannot be told.
        while matches!(armed, Ok(false)) && began.elapsed() < ARMING {
            armed = inside.arm_rest();
        }
        armed.map_err(|refusal| refused(target, refusal))?;
    }
    Ok(())
}

/// Takes the library away, from all; sampling ends at once. Gives what has no samples.
fn leave(mut entered: Vec<Inside>) -> Vec<Lacks> {
    let lacks = entered.iter_mut().map(Inside::disarm).collect();
    for inside in entered {
        let pid = inside.pid();
        match inside.leave() {
            Ok(Departure::Gone(held)) if held > LONG => say(format_args!(
                "process {pid}: at the end a thread of it was held for {:.1} ms",
                held.as_secs_f64() * 1e3
            )),
            Ok(Departure::Gone(_) | Departure::Over) => {}
            Err(Refusal::Ended) => {}
            Err(refusal) => say(format_args!(
                "process {pid}: our library stays in it, and does nothing: {refusal}; the next record -p --how inside takes it away"
            )),
        }
    }
    lacks
}

/// Writes it into the recording.
fn note(drain: &mut Drain, lacks: &Lacks) -> io::Result<()> {
    let mut records = Records::default();
    for sentence in &lacks.sentences {
        records.note(clock::monotonic_ns(), sentence);
    }
    if records.are_none() {
        return Ok(());
    }
    let pid = lacks.pid.cast_signed();
    // The library has a key of its own for the process, of a little later.
    let info = ChunkInfo {
        pid: processes::inner_number(pid, pid).unwrap_or(lacks.pid),
        process_key: lacks.began_ns,
        sequence: FROM_SWITCHES,
        ..ChunkInfo::default()
    };
    let (info, records) = records.into_chunk(info);
    drain.writer().chunk(&info, &records)
}

/// By the library in them.
struct Entered {
    entered: Vec<Inside>,
    next_drain: Instant,
}

impl Way for Entered {
    fn look(&mut self, drain: &mut Drain, session: &Session) -> io::Result<Option<Duration>> {
        let mut many = false;
        let mut any = false;
        for inside in &mut self.entered {
            if inside.is_there() {
                any = true;
                many |= inside.threads() > MANY;
                // Refused for a thread that is born later, it is not sampled.
                let _ = inside.arm();
            }
        }
        if !any {
            return Ok(None);
        }
        // A control page that cannot be written is no reason to stop.
        let _ = session.beat();
        let now = Instant::now();
        if now >= self.next_drain {
            let _ = drain.look()?;
            self.next_drain = now + DRAIN;
        }
        Ok(Some(if many { DRAIN } else { INTERVAL }))
    }

    fn finish(self, drain: &mut Drain, session: &Session) -> io::Result<()> {
        let lacks = leave(self.entered);
        let _ = session.end();
        while drain.finish()? == Progress::Begun {}
        lacks.iter().try_for_each(|lacks| note(drain, lacks))
    }
}
