//! What the preload library makes the start and the end of a program cost more where no clock of
//! ours runs: the loader maps and links it, exec and exit take more away. A program that does
//! nothing, without it and with it, unprofiled.
//!
//! Not here: the library's own preparation, which the program's clock shows.

use crate::numbers::median;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::path::Path;
use std::process::{Command, Stdio};

/// Fewer programs cost too little to be asked for.
const FEW_PROGRAMS: u64 = 20;
/// A program that does nothing.
const PROGRAM: &str = "/bin/true";
/// Programs of a trial.
const STARTS: u64 = 3;
/// Trials, of which the median counts.
const TRIALS: usize = 5;

/// What was found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCost {
    /// Cost of loading, ns; 0 where it does not matter, or there is no program to try.
    pub load_ns: u64,
    /// What the programs of the trials used, which is in no clock of this process, ns.
    pub tried_ns: u64,
}

impl LoadCost {
    /// Measures it for so many programs. Nobody else may wait for children of this process.
    #[must_use]
    pub fn measured(programs: u64, library: &Path) -> Self {
        if programs < FEW_PROGRAMS {
            return Self::default();
        }
        let before = children_ns().unwrap_or(0);
        let trial = |_| Some(starts(Some(library))?.saturating_sub(starts(None)?));
        let trials = (0..TRIALS).map(trial).collect::<Option<_>>();
        Self {
            load_ns: trials.and_then(median).unwrap_or(0),
            tried_ns: children_ns().unwrap_or(0).saturating_sub(before),
        }
    }
}

/// Cost of a program's start and end, ns.
fn starts(library: Option<&Path>) -> Option<u64> {
    let before = children_ns()?;
    for _ in 0..STARTS {
        let mut command = Command::new(PROGRAM);
        command.env_clear().stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(library) = library {
            command.env("LD_PRELOAD", library);
        }
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
        assert!(starts(None).is_some_and(|ns| ns > 0));
        // What cannot be loaded is said on standard error, and the program runs.
        let library = Path::new("/nowhere.so");
        assert!(LoadCost::measured(FEW_PROGRAMS, library).tried_ns > 0);
        let few = LoadCost::measured(FEW_PROGRAMS - 1, library);
        assert_eq!(few, LoadCost::default());
    }
}
