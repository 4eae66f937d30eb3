//! What makes a thread unwind itself: a perf event of its own, or a CPU timer of its own. A closed set, so an enum.
//!
//! Both raise [`SIGNAL`] on exactly their thread. How good a trigger is, is in [`Trigger`]'s order: perf with kernel mode, perf in user
//! mode only, timer; a step down is recorded with its reason.

pub mod asked;
pub mod cost;
mod event;
mod handover;
pub mod perf;
mod petition;
pub mod ring;
pub mod timer;

use crate::config::{Config, TriggerChoice};
use crate::sys::{self, Errno};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use engine::wire::offer::MAX_EVENTS;
use engine::wire::sample::Trigger;
use perf::{PerfEvent, Recipient, Source};
use timer::CpuTimer;

/// The signal that asks a thread to unwind itself.
pub const SIGNAL: i32 = libc::SIGPROF;

/// An armed trigger. Dropping it disarms: no further signal of its is generated, though one may be pending.
#[derive(Debug, Default)]
pub enum Armed {
    /// Not armed.
    #[default]
    None,
    /// A perf event.
    Perf(PerfEvent),
    /// A CPU timer.
    Timer(CpuTimer),
}

impl Armed {
    /// Which it is, for the records.
    pub fn kind(&self) -> Trigger {
        match self {
            Self::None => Trigger::None,
            Self::Perf(event) if event.samples_kernel() => Trigger::PerfKernel,
            Self::Perf(_) => Trigger::PerfUser,
            Self::Timer(_) => Trigger::Timer,
        }
    }
}

/// What the process has learnt about permissions: errno of the refusal of perf with and without kernel mode; 0 while not refused.
static KERNEL_REFUSED: AtomicI32 = AtomicI32::new(0);
static PERF_REFUSED: AtomicI32 = AtomicI32::new(0);
/// Likewise, of a collector with more rights.
static PETITION_REFUSED: AtomicI32 = AtomicI32::new(0);

/// What arming needs to know of the thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Comes back in `si_value` of a timer's signals.
    pub tag: usize,
    /// Its last nonce.
    pub nonce: u64,
    /// The collector that may empty its ring.
    pub recipient: Option<Recipient>,
}

/// Arms the calling thread with the best trigger permitted. Gives it with the errno of the next better one's refusal (0 if there is none).
///
/// # Errors
/// The errno of the last attempt, if nothing is permitted.
pub fn arm(config: &Config, period_ns: u64, thread: &Thread) -> Result<(Armed, Errno), Errno> {
    let open = |kernel| {
        let cpu_time = Source::cpu_time(period_ns, kernel);
        let mut sources = [cpu_time; MAX_EVENTS];
        let mut count = 1usize;
        for (slot, asked) in sources
            .iter_mut()
            .skip(1)
            .zip(config.events.iter().flatten())
        {
            *slot = Source {
                kernel: asked.kernel && kernel,
                ..*asked
            };
            count = count.wrapping_add(1);
        }
        let sources = sources.get(..count).unwrap_or(&[]);
        PerfEvent::open(sources, thread.nonce, thread.recipient)
    };
    let mut refused = Errno(0);
    if config.trigger.allows(Trigger::PerfKernel) {
        let filtered = config.trigger == TriggerChoice::Auto && sys::seccomp_filtered();
        if filtered {
            // A filter may answer perf_event_open by killing the process.
            refused = Errno(libc::EACCES);
        } else {
            if config.kernel {
                match attempt(&KERNEL_REFUSED, || open(true)) {
                    Ok(event) => return Ok((Armed::Perf(event), Errno(0))),
                    Err(error) => refused = error,
                }
                // Only the event on CPU time can be asked for: others are sampled as far as the program's own rights go.
                let alone = config.events.iter().all(Option::is_none);
                if let (Some(recipient), libc::EACCES | libc::EPERM, true) =
                    (thread.recipient, refused.0, alone)
                {
                    let asked = || PerfEvent::ask(period_ns, thread.nonce, &recipient);
                    if let Ok(event) = attempt(&PETITION_REFUSED, asked) {
                        return Ok((Armed::Perf(event), Errno(0)));
                    }
                }
            }
            match attempt(&PERF_REFUSED, || open(false)) {
                Ok(event) => return Ok((Armed::Perf(event), refused)),
                Err(error) => refused = error,
            }
        }
    }
    if config.trigger.allows(Trigger::Timer) {
        return CpuTimer::start(period_ns, thread.tag).map(|timer| (Armed::Timer(timer), refused));
    }
    Err(refused)
}

/// Tries, unless an earlier thread was refused for a reason that will not go away.
fn attempt<T>(memory: &AtomicI32, open: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let before = memory.load(Relaxed);
    if before != 0 {
        return Err(Errno(before));
    }
    open().inspect_err(|error| {
        if matches!(
            error.0,
            libc::EACCES | libc::EPERM | libc::ENOSYS | libc::EINVAL
        ) {
            memory.store(error.0, Relaxed);
        }
    })
}
