//! What makes a thread unwind itself: a perf event of its own, or a CPU timer of its own. A closed
//! set, so an enum.
//!
//! Both raise the thread's signal ([`crate::signal`]) on exactly their thread. How good a trigger
//! is, is in [`Trigger`]'s order: perf with kernel mode, perf in user mode only, timer; a step down
//! is recorded with its reason.

pub mod cost;
mod event;
mod event_request;
pub mod handover;
pub mod perf;
pub mod ring;
mod thread;
pub mod timer;

use crate::config::source::Source;
use crate::config::{Config, TriggerChoice};
use crate::restart;
use crate::signal;
use crate::sys::{self, Errno};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use engine::wire::offer::MAX_EVENTS;
use engine::wire::sample::Trigger;
use perf::PerfEvent;
pub use thread::{Outlook, Thread};
use timer::CpuTimer;

/// An armed trigger. Dropping it disarms: no further signal of its is generated, though one may be
/// pending.
#[derive(Debug, Default)]
pub enum Armed {
    /// Not armed.
    #[default]
    None,
    /// A perf event.
    Perf(PerfEvent),
    /// A CPU timer; until its first signal in a fork child perhaps with an event beside it that
    /// raises nothing ([`arm_fork_child`]).
    Timer(CpuTimer, Option<PerfEvent>),
    /// A CPU timer in the place of an event, until its first signal: of a thread that will hardly
    /// live to see it.
    Late(CpuTimer),
    /// An event that the collector has opened on it, of user mode.
    Outside,
}

impl Armed {
    /// Which it is, for the records.
    pub fn kind(&self) -> Trigger {
        match self {
            Self::None => Trigger::None,
            Self::Perf(event) if event.samples_kernel() => Trigger::PerfKernel,
            Self::Perf(_) | Self::Outside => Trigger::PerfUser,
            Self::Timer(..) | Self::Late(_) => Trigger::Timer,
        }
    }
}

/// What `si_fd` of the signals of events that the collector has opened says; -1 if there are none.
static OUTSIDE: AtomicI32 = AtomicI32::new(-1);

/// From now on signals with that `si_fd` are those of the collector's events.
pub fn set_outside(descriptor: i32) {
    OUTSIDE.store(descriptor, Relaxed);
}

/// Whether a signal with that `si_fd` is one of those.
pub fn is_outside(descriptor: i32) -> bool {
    descriptor >= 0 && OUTSIDE.load(Relaxed) == descriptor
}

/// What the process has learnt about permissions: errno of the refusal of perf with and without
/// kernel mode; 0 while not refused.
static KERNEL_REFUSED: AtomicI32 = AtomicI32::new(0);
static PERF_REFUSED: AtomicI32 = AtomicI32::new(0);
/// Likewise, of a collector with more rights.
static REQUEST_REFUSED: AtomicI32 = AtomicI32::new(0);

/// The timer of a thread that may not last. Where it is sampled seldomer than the rate says, less
/// than a period can have a weight: it first goes off as chance has it.
fn brief(period_ns: u64, thread: &Thread<'_>) -> Result<CpuTimer, Errno> {
    match thread.periods {
        0..=1 => CpuTimer::start(period_ns, thread),
        _ => CpuTimer::start_by_chance(period_ns, thread),
    }
}

/// Arms the calling thread with the best trigger permitted. Gives it with the errno of the next
/// better one's refusal (0 if there is none).
///
/// # Errors
/// The errno of the last attempt, if nothing is permitted.
pub fn arm(config: &Config, period_ns: u64, thread: &Thread<'_>) -> Result<(Armed, Errno), Errno> {
    if signal::is_given_up() {
        return Err(Errno(libc::EPERM));
    }
    if thread.outlook == Outlook::Brief
        && may_do_without(config)
        && let Ok(timer) = brief(period_ns, thread)
    {
        return Ok((Armed::Late(timer), Errno(0)));
    }
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
        PerfEvent::open(sources, thread)
    };
    let mut refused = Errno(0);
    if config.trigger.allows(Trigger::PerfKernel) {
        let filtered = sys::seccomp_filtered();
        if filtered && !sys::filters::are_known() {
            restart::keep_numbers();
        }
        if filtered && config.trigger == TriggerChoice::Auto {
            // A filter may answer perf_event_open by killing the process.
            refused = Errno(libc::EACCES);
        } else {
            if config.kernel {
                match attempt(&KERNEL_REFUSED, || open(true)) {
                    Ok(event) => return Ok((Armed::Perf(event), Errno(0))),
                    Err(error) => refused = error,
                }
                // Only the event on CPU time can be asked for: others are sampled as far as the
                // program's own rights go.
                let alone = config.events.iter().all(Option::is_none);
                if let (Some(recipient), libc::EACCES | libc::EPERM, true) =
                    (thread.recipient, refused.0, alone)
                {
                    let asked = || PerfEvent::ask(period_ns, thread, &recipient);
                    match attempt(&REQUEST_REFUSED, asked) {
                        Ok(event) => return Ok((Armed::Perf(event), Errno(0))),
                        // Then the permission is not what is missing.
                        Err(Errno(libc::ETIMEDOUT)) => refused = Errno(libc::ETIMEDOUT),
                        Err(_) => {}
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
        return CpuTimer::start(period_ns, thread)
            .map(|timer| (Armed::Timer(timer, None), refused));
    }
    Err(refused)
}

/// Whether a thread may have no event for a time: nothing but CPU time is asked for, and there is a
/// choice.
pub fn may_do_without(config: &Config) -> bool {
    let alone = config.events.iter().all(Option::is_none);
    alone && config.trigger == TriggerChoice::Auto && PERF_REFUSED.load(Relaxed) == 0
}

/// Arms the only thread of a fork child until its first signal, as cheaply as it goes: with a
/// timer, and where kernel mode may be sampled with an event that raises nothing. A child that
/// execs unseen is not killed by that, and one that lives in a single system call has the kernel's
/// half of its samples nevertheless. `early` is an event of that kind that it has already.
///
/// # Errors
/// The timer's; without the event it goes on.
pub fn arm_fork_child(
    config: &Config,
    period_ns: u64,
    thread: &Thread<'_>,
    early: Option<PerfEvent>,
) -> Result<Armed, Errno> {
    let timer = CpuTimer::start(period_ns, thread)?;
    let early = early.or_else(|| {
        let wanted = config.kernel && config.trigger.allows(Trigger::PerfKernel);
        let filtered = || config.trigger == TriggerChoice::Auto && sys::seccomp_filtered();
        if !wanted || filtered() {
            return None;
        }
        attempt(&KERNEL_REFUSED, || PerfEvent::open_early(period_ns, thread)).ok()
    });
    Ok(Armed::Timer(timer, early))
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
            libc::EACCES | libc::EPERM | libc::ENOSYS | libc::EINVAL | libc::ETIMEDOUT
        ) {
            memory.store(error.0, Relaxed);
        }
    })
}
