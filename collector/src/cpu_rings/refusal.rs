//! Why stacks could not be copied, with what would help.

use nix::errno::Errno;
use std::fmt;

/// Why events could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What failed.
    pub step: Step,
    /// Why.
    pub errno: Errno,
}

impl Refusal {
    /// Who is meant has ended.
    pub const ENDED: Self = Self {
        step: Step::Open,
        errno: Errno::ESRCH,
    };
    /// It was not tried.
    pub const FILTERED: Self = Self {
        step: Step::Try,
        errno: Errno::EACCES,
    };
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Trying at all: under a seccomp filter, which may kill who does.
    Try,
    /// Opening an event.
    Open,
    /// The same, on all that runs.
    OpenOnAll,
    /// Mapping its ring.
    Map,
    /// Starting a thread of ours that reads the rings.
    Read,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.step {
            Step::Try => "a seccomp filter is in force, which may kill who asks for perf events",
            Step::Open => "perf events were refused",
            Step::OpenOnAll => "perf events on all processes were refused",
            Step::Map => "memory for perf events was refused",
            Step::Read => "no thread could be started",
        };
        let remedy = match (self.step, self.errno) {
            (Step::Try, _) => {
                "use a profile that allows perf_event_open, and --trigger perf to insist"
            }
            (Step::Open, Errno::EACCES | Errno::EPERM) => {
                "set kernel.perf_event_paranoid to 2 or below, give rsunwind CAP_PERFMON, and in a container use a seccomp profile that \
                 allows perf_event_open; another user's program needs root"
            }
            (Step::OpenOnAll, Errno::EACCES | Errno::EPERM) => {
                "run as root, give rsunwind CAP_PERFMON, or set kernel.perf_event_paranoid to 0; processes of your own are recorded by -p"
            }
            (Step::Open | Step::OpenOnAll, Errno::ENOSYS) => {
                "this kernel or sandbox has no perf_event_open"
            }
            (Step::Open, Errno::EMFILE) => {
                "raise `ulimit -n`: each processor takes up to three descriptors, with -p for each thread"
            }
            (Step::Open, Errno::ESRCH) => "it has ended meanwhile",
            (Step::Open, Errno::ENFILE) => "raise fs.file-max",
            (Step::Map, Errno::EPERM | Errno::ENOMEM) => {
                "raise `ulimit -l` or kernel.perf_event_mlock_kb"
            }
            _ => "",
        };
        f.write_str(what)?;
        if self.step != Step::Try {
            write!(f, ": {}", self.errno.desc())?;
        }
        if !remedy.is_empty() {
            write!(f, " ({remedy})")?;
        }
        Ok(())
    }
}
