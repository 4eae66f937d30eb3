//! The events on a process that `record` starts.
//!
//! Not here: processes that run already ([`super::running`]).

use super::events::On;
use super::program_runs::ProgramRuns;
use super::reader::Reader;
use super::{Attached, Settings};
use crate::clock::monotonic_ns;
use crate::cpu_rings::{Adopted, Refusal, Start, request};
use crate::exec_watch::{self, ExecWatch};
use crate::processes;
use nix::unistd::Pid;

/// Opens events on a process and everything that it will start: on CPU time with kernel mode if
/// that is granted, else without.
///
/// # Errors
/// [`Refusal`] if neither is, or no context switches where those are asked for.
pub fn attach(pid: Pid, start: Start, mut settings: Settings) -> Result<Attached, Refusal> {
    let mut rings = On::Process(pid, start).rings(&mut settings)?;
    if settings.execs {
        match exec_watch::listen(pid, start) {
            Err(refusal) if rings.is_empty() => return Err(refusal),
            heard => rings
                .splice(..0, heard.into_iter().flatten())
                .for_each(drop),
        }
    }
    let mut runs = ProgramRuns::new(settings);
    let now = monotonic_ns();
    match start {
        Start::AtExec if !settings.cpu_time && !settings.switches => {}
        Start::AtExec => {
            let cpu_ns = processes::cpu_ns(pid.as_raw(), pid.as_raw()).unwrap_or(0);
            runs.expect(pid.as_raw(), now, cpu_ns);
        }
        Start::Now => {
            let events = rings.iter().map(|ring| ring.buffer.event());
            events.for_each(request::enable);
            let pid = pid.as_raw();
            let adopted = Adopted {
                found: processes::find(pid, &[pid]),
                kernel_refused: None,
                unwatched: (processes::threads(pid).len() as u64).saturating_sub(1),
                has_library: false,
            };
            runs.adopt(pid, now, adopted);
        }
    }
    Ok(Attached {
        reader: Reader::new(
            rings,
            settings
                .execs
                .then(|| ExecWatch::new(settings.of_new_programs())),
        ),
        runs,
        settings,
    })
}
