//! Has a thread of a process that can be held do something.

use super::Refusal;
use super::apart;
use super::held::Held;
use crate::urgency::make_urgent_for_a_moment;
use nix::errno::Errno;
use std::thread;
use std::time::{Duration, Instant};

/// From one look for a thread that may be stopped to the next.
const BETWEEN: Duration = Duration::from_millis(5);

/// Has a thread of the process do something. A process of its own sees to that ([`apart`]): should
/// anything go wrong, or this one be killed, the thread goes on as it was in any case.
pub(super) fn held_for<T>(
    pid: u32,
    patience: Duration,
    work: impl FnOnce(&Held) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let deadline = Instant::now() + patience;
    let mut work = Some(work);
    loop {
        let done = apart::apart(|| {
            make_urgent_for_a_moment();
            let held = Held::stop(pid)?;
            let work = work.take().ok_or(Refusal::Library)?;
            let done = work(&held);
            held.release()?;
            done
        });
        let done = done.map_err(Refusal::Ptrace)?;
        let done = done.unwrap_or(Err(Refusal::Library));
        let refusal = match done {
            // It was killed meanwhile, or another thread of it has called exec.
            Err(Refusal::Ptrace(Errno::ESRCH)) if work.is_none() => return Err(Refusal::Ended),
            // The kernel may not have let go yet of what another process of ours had.
            Err(Refusal::Ptrace(errno @ (Errno::EAGAIN | Errno::EPERM | Errno::ESRCH))) => {
                Refusal::Ptrace(errno)
            }
            Err(Refusal::NobodyToStop) => Refusal::NobodyToStop,
            other => return other,
        };
        if work.is_none() || Instant::now() > deadline {
            return Err(refusal);
        }
        thread::sleep(BETWEEN);
    }
}
