//! What one event with its signal costs on this machine ([`engine::affordable`]): measured here
//! once before the start, where the rate is so high that it matters, so that the programs need not,
//! each of them; and at the end, in two parts, for the account ([`super::price`]). Where a share
//! was said, what it adds to a context switch is measured before the start, too.
//!
//! # Safety
//! For the moment of the measurement there is a handler for SIGPROF, which counts. The event's own
//! thread alone gets it.
#![allow(unsafe_code)]

use super::args::{Args, Trigger};
use super::switch_cost::{self, Effort};
use crate::clock;
use crate::cpu_rings::Ring;
use crate::numbers::median;
use crate::perf_event::{self, ANY_PROCESSOR, THIS_THREAD};
use crate::seccomp;
use engine::affordable::{self, TRIAL_BYTES, TRIAL_PERIOD_NS, Trial, is_questioned};
use engine::perf_event::{Attributes, kind, request, software};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::gettid;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const RING_SIZE: usize = 8 * 4096;
/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// Words of a sample up to its time ([`engine::perf_event::SAMPLE_TYPE`]).
const TIME_AT: usize = 4;
/// Trials for the account: more of them, right behind each other, find the machine in the same
/// state and say no more.
const ONE_TRIAL: usize = 1;
/// Trials for the rate, of which the highest counts: events cost more in programs than here, and
/// one trial in a few says half of what the others do.
const FEW_TRIALS: usize = 3;

static SIGNALS: AtomicU64 = AtomicU64::new(0);
/// When each of a trial came (`CLOCK_MONOTONIC`, ns), as far as there is room.
static CAME_NS: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];

/// What one event cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// All in all, ns.
    all_ns: u64,
    /// From its sample to its handler, ns; 0 where signals were left out.
    seen_ns: u64,
}

/// The setting that tells the programs, with its comma; empty where they need not know.
pub fn setting(args: &Args) -> String {
    let (asked_ns, share) = (args.rate.period_ns(), args.share().0);
    let is_exact = affordable::is_exact(share);
    if !(is_exact || is_questioned(asked_ns, share)) || !is_known(args) {
        return String::new();
    }
    let Some(cost) = apart(|| measure(FEW_TRIALS)?.into_iter().max()) else {
        return String::new();
    };
    let setting = format!("cost={},seen={},", cost.all_ns, cost.seen_ns);
    if !is_exact {
        return setting;
    }
    // A switch costs the more the sooner the event's timer is due.
    let first = affordable::beginning(asked_ns, share, || Some(cost.all_ns));
    let apart_ns = first.period_ns.saturating_mul(first.periods);
    // Nobody listens for programs then.
    let switch_ns = switch_cost::measure(apart_ns, cost.all_ns, false, Effort::EXACT);
    format!("{setting}switch={},", switch_ns.unwrap_or(0))
}

/// Whether programs may have such events, and the cost be measured here.
pub fn is_known(args: &Args) -> bool {
    args.trigger != Trigger::Timer && !seccomp::is_in_force()
}

/// Cost of an event with its signal, ns: what a program cannot see of it, and what it can; `None`
/// where perf is refused.
pub fn in_two_parts() -> Option<(u64, u64)> {
    let cost = apart(|| measure(ONE_TRIAL)?.pop())?;
    Some((cost.all_ns.saturating_sub(cost.seen_ns), cost.seen_ns))
}

/// On a thread of its own, which alone lets the signal in.
fn apart<T: Send + 'static>(measure: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
    thread::spawn(measure).join().ok().flatten()
}

/// Cost of an event with its signal in each of so many trials; `None` where perf is refused.
fn measure(trials: usize) -> Option<Vec<Cost>> {
    let _counting = Counting::begin().ok()?;
    let mut memory = vec![1; TRIAL_BYTES];
    let mut trial = Trial::new(&mut memory, clock::thread_cpu_ns);
    let mut costs = Vec::new();
    for number in 0..trials {
        // On a machine that others use the first times may all have been long ones.
        if number > 0 {
            trial.calm();
        }
        let mut ring = ring(TRIAL_PERIOD_NS)?;
        signal_this_thread(ring.event()).ok()?;
        SIGNALS.store(0, Relaxed);
        enable(ring.event()).ok()?;
        let disturbed_ns = trial.disturbed_ns();
        let signals = SIGNALS.load(Relaxed);
        let came: Vec<u64> = (CAME_NS.iter().map(|came| came.load(Relaxed)))
            .take(signals as usize)
            .collect();
        let seen_ns = median(seen(&times(&mut ring), &came));
        costs.extend(disturbed_ns.checked_div(signals).map(|all_ns| Cost {
            all_ns,
            seen_ns: seen_ns.unwrap_or(0).min(all_ns),
        }));
    }
    Some(costs)
}

/// Begins to sample the calling thread, without signals; `None` where perf is refused.
pub fn begin(period_ns: u64) -> Option<Ring> {
    let ring = ring(period_ns)?;
    enable(ring.event()).ok()?;
    Some(ring)
}

/// How many samples have come.
pub fn samples(ring: &mut Ring) -> u64 {
    times(ring).len() as u64
}

/// How long after its sample each signal came, ns. Where several samples share one signal, on a
/// machine that is slow at them, it is the first's: the others found it pending.
fn seen(samples: &[u64], came: &[u64]) -> Vec<u64> {
    let mut samples = samples.iter().copied().peekable();
    let mut before_ns = 0;
    let mut seen = Vec::new();
    for &came_ns in came {
        while samples.next_if(|&at_ns| at_ns <= before_ns).is_some() {}
        seen.extend((samples.peek()).and_then(|at_ns| came_ns.checked_sub(*at_ns)));
        before_ns = came_ns;
    }
    seen
}

/// When the samples were taken that have come (`CLOCK_MONOTONIC`, ns).
fn times(ring: &mut Ring) -> Vec<u64> {
    let mut times = Vec::new();
    ring.take(|mut record| {
        if record.kind == SAMPLE {
            let mut words = [[0; 8]; TIME_AT];
            if words
                .iter_mut()
                .all(|word| record.body.read_exact(word).is_ok())
            {
                let [.., time] = words;
                times.push(u64::from_le_bytes(time));
            }
        }
    });
    times
}

/// An event on the calling thread, which does not run yet.
fn ring(period_ns: u64) -> Option<Ring> {
    let event = open(period_ns, true).or_else(|_| open(period_ns, false));
    Ring::map(event.ok()?, RING_SIZE).ok()
}

fn enable(event: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: no memory involved.
    let enabled = unsafe { libc::ioctl(event.as_raw_fd(), request::ENABLE as libc::Ioctl, 0) };
    Errno::result(enabled).map(drop)
}

fn open(period_ns: u64, kernel: bool) -> Result<OwnedFd, Errno> {
    let every = Attributes::of_thread(kind::SOFTWARE, software::TASK_CLOCK, period_ns, kernel);
    let open = |event: &Attributes| perf_event::open(event, THIS_THREAD, ANY_PROCESSOR);
    let [newest, older, oldest] = every.and_for_older_kernels();
    open(&newest)
        .or_else(|_| open(&older))
        .or_else(|_| open(&oldest))
}

/// Has the event raise SIGPROF on this thread.
fn signal_this_thread(event: &OwnedFd) -> Result<(), Errno> {
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    let owner = [0 /* F_OWNER_TID */, gettid().as_raw()];
    let fd = event.as_raw_fd();
    // SAFETY: the kernel reads the two words of the owner; nothing else of ours is touched.
    unsafe {
        Errno::result(libc::fcntl(fd, F_SETSIG, libc::SIGPROF))?;
        Errno::result(libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr()))?;
        Errno::result(libc::fcntl(
            fd,
            libc::F_SETFL,
            libc::O_ASYNC | libc::O_NONBLOCK,
        ))?;
    }
    Ok(())
}

/// While it lives, SIGPROF is counted.
struct Counting {
    before: SigAction,
}

impl Counting {
    fn begin() -> Result<Self, Errno> {
        let count = SigHandler::Handler(count);
        let action = SigAction::new(count, SaFlags::SA_RESTART, SigSet::all());
        // SAFETY: the handler adds to a number.
        let before = unsafe { sigaction(Signal::SIGPROF, &action)? };
        let mut ours = SigSet::empty();
        ours.add(Signal::SIGPROF);
        ours.thread_unblock()?;
        Ok(Self { before })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut ours = SigSet::empty();
        ours.add(Signal::SIGPROF);
        // A signal that is still on its way must not meet the action before, which may kill.
        let _ = ours.thread_block();
        // SAFETY: what was there before.
        let _ = unsafe { sigaction(Signal::SIGPROF, &self.before) };
    }
}

extern "C" fn count(_: i32) {
    let before = SIGNALS.fetch_add(1, Relaxed);
    if let Some(came) = CAME_NS.get(before as usize) {
        came.store(clock::monotonic_ns(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_several_samples_share_is_the_firsts() {
        assert_eq!(seen(&[10, 20, 30], &[12, 23, 34]), [2, 3, 4]);
        assert_eq!(seen(&[10, 20, 25, 30, 50], &[22, 34, 51]), [12, 9, 1]);
        // Of a signal whose sample is not there, and of samples whose signal is not, nothing.
        assert_eq!(seen(&[10, 40, 50], &[12, 23, 44]), [2, 4]);
        assert!(seen(&[], &[5]).is_empty() && seen(&[5], &[]).is_empty());
    }

    #[test]
    fn an_event_costs_something_and_leaves_no_handler() {
        let before = SIGNALS.load(Relaxed);
        match thread::spawn(|| measure(FEW_TRIALS)).join().unwrap() {
            Some(costs) => {
                let cost = costs.iter().max().unwrap();
                assert!((1..10_000_000).contains(&cost.all_ns), "{cost:?}");
                assert!(
                    costs.iter().all(|cost| cost.seen_ns < 10_000_000),
                    "{costs:?}"
                );
                assert!(costs.iter().any(|cost| cost.seen_ns > 0), "{costs:?}");
            }
            None => eprintln!("LEFT OUT: perf is refused"),
        }
        assert!(SIGNALS.load(Relaxed) >= before);
        let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
        // SAFETY: nobody in the tests wants the signal.
        let left = unsafe { sigaction(Signal::SIGPROF, &ignore) }.unwrap();
        assert!(matches!(left.handler(), SigHandler::SigDfl));
    }
}
