//! What recording makes the start and the end of a program cost more where no clock of ours runs:
//! the loader maps and links the library, exec and exit take more away, descriptors and memory of
//! ours are given back, and events that tell of programs are inherited, and told of it all. A
//! program that does nothing is started without the library, and with it in a session of its own;
//! what it says of itself there, and nothing else, is left out.

use super::drain::Drain;
use super::rings::Rings;
use super::session::Session;
use super::turn::Progress;
use super::writer::Writer;
use crate::charge::{Ledger, Reason};
use crate::correlate;
use crate::exec_watch;
use crate::numbers::median;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};

/// Fewer programs cost too little to be asked for.
const FEW_PROGRAMS: u64 = 20;
/// A program that does nothing.
const PROGRAM: &str = "/bin/true";
/// Programs of a trial.
const STARTS: u64 = 3;
/// Trials, of which the median counts.
const TRIALS: usize = 7;

/// What programs were started with.
#[derive(Clone, Copy)]
pub struct Preload<'a> {
    pub library: &'a Path,
    /// Settings in which no sample is taken, for a session in that directory.
    pub settings: &'a dyn Fn(&Path) -> OsString,
}

/// What was found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCost {
    /// Cost of a start and an end, ns; 0 where it does not matter, or there is no program to try.
    pub load_ns: u64,
    /// What the programs of the trials used, which is in no clock of this process, ns.
    pub tried_ns: u64,
}

impl LoadCost {
    /// Measures it for so many programs. `listens` says whether they inherited events that tell of
    /// programs. Nobody else may wait for children of this process.
    #[must_use]
    pub fn measured(programs: u64, preload: &Preload<'_>, listens: bool) -> Self {
        if programs < FEW_PROGRAMS {
            return Self::default();
        }
        let before = children_ns().unwrap_or(0);
        let rehearsal = Rehearsal::begin(preload);
        let load_ns = rehearsal.and_then(|it| it.load_ns(listens));
        Self {
            load_ns: load_ns.unwrap_or(0),
            tried_ns: children_ns().unwrap_or(0).saturating_sub(before),
        }
    }
}

/// A session in which nothing but the trials is recorded.
struct Rehearsal {
    session: Session,
    drain: Drain,
    recording: File,
    variables: [(&'static str, OsString); 2],
}

impl Rehearsal {
    fn begin(preload: &Preload<'_>) -> Option<Self> {
        let session = Session::create().ok()?;
        let recording = tempfile::tempfile().ok()?;
        let writer = Writer::new(recording.try_clone().ok()?);
        let rings = Rings::listen(session.path());
        Some(Self {
            drain: Drain::new(session.path(), rings, writer),
            recording,
            variables: [
                ("LD_PRELOAD", preload.library.into()),
                ("RSUNWIND", (preload.settings)(session.path())),
            ],
            session,
        })
    }

    /// What no clock of ours shows of a start and an end, ns.
    fn load_ns(mut self, listens: bool) -> Option<u64> {
        let mut more = Vec::new();
        for _ in 0..TRIALS {
            let plain = starts(&[])?;
            let listening = listens.then(exec_watch::listen_here);
            let recorded = starts(&self.variables)?;
            drop(listening);
            let _ = self.drain.look().ok()?;
            more.push(recorded.saturating_sub(plain));
        }
        Some(median(more)?.saturating_sub(self.own_ns()?))
    }

    /// What a program's clock shows of it, ns.
    fn own_ns(mut self) -> Option<u64> {
        self.session.end().ok()?;
        while self.drain.finish().ok()? == Progress::Begun {}
        self.drain.writer().finish().ok()?;
        let mut bytes = Vec::new();
        self.recording.rewind().ok()?;
        self.recording.read_to_end(&mut bytes).ok()?;
        let recording = correlate::read_bytes("rehearsal", bytes).ok()?;
        let ledger = Ledger::of(&recording);
        let prepared = ledger.rows.iter().filter(|row| row.reason == Reason::SetUp);
        let prepared = median(prepared.map(|row| row.ns).collect())?;
        let threads = recording.threads.iter();
        let armed = median(threads.map(|thread| thread.totals.arming_ns).collect())?;
        Some(prepared.saturating_add(armed))
    }
}

/// Cost of a program's start and end with those variables and no others, ns.
fn starts(variables: &[(&str, OsString)]) -> Option<u64> {
    let before = children_ns()?;
    for _ in 0..STARTS {
        let mut command = Command::new(PROGRAM);
        command.env_clear().stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.status().ok()?;
    }
    children_ns()?.saturating_sub(before).checked_div(STARTS)
}

/// CPU time of all children that were waited for, ns.
fn children_ns() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let all = usage.user_time() + usage.system_time();
    u64::try_from(all.num_nanoseconds()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_costs_something_and_few_are_not_asked_for() {
        assert!(starts(&[]).is_some_and(|ns| ns > 0));
        // What cannot be loaded is said on standard error, and the program runs.
        let preload = Preload {
            library: Path::new("/nowhere.so"),
            settings: &|_| OsString::new(),
        };
        let found = LoadCost::measured(FEW_PROGRAMS, &preload, true);
        assert!(found.tried_ns > 0);
        assert_eq!(found.load_ns, 0, "nobody said what preparation took");
        let few = LoadCost::measured(FEW_PROGRAMS - 1, &preload, true);
        assert_eq!(few, LoadCost::default());
    }
}
