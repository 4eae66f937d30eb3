//! What each thread's own account says: triggers granted and refused, weight against CPU time, and
//! what the handler cost.

use super::line;
use crate::numbers::{duration, plural, share};
use crate::profile::Profile;
use crate::recording::{Arming, Thread, ThreadId};
use engine::wire::sample::Trigger;
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A rate that is so much of another is the same.
const NEARLY: f64 = 0.98;

/// The account of one thread.
pub(super) struct Account {
    thread: ThreadId,
    /// CPU time that its samples stand for, ns.
    pub(super) sampled_ns: u64,
    /// The same of those it lost.
    lost_ns: u64,
    pub(super) lost_samples: u64,
    pub(super) lost_weight: u64,
    /// CPU time while it was armed, ns; `None` if nobody looked.
    pub(super) armed_ns: Option<u64>,
    pub(super) handler_ns: u64,
    pub(super) arming_ns: u64,
    pub(super) delivery_ns: u64,
    period_ns: u64,
}

/// One account per thread.
pub(super) fn accounts(profile: &Profile) -> Vec<Account> {
    let mut sampled: HashMap<ThreadId, u64> = HashMap::new();
    for sample in &profile.samples {
        let sum = sampled.entry(sample.thread).or_default();
        *sum = sum.saturating_add(profile.time_ns(sample));
    }
    let threads = profile.recording.threads.iter().enumerate();
    threads
        .map(|(index, thread)| {
            let id = ThreadId::next_of(index);
            let period_ns = profile.period_ns(id);
            let unarmed_ns = thread.unarmed_cpu_ns();
            let cpu_ns = thread.cpu_ns();
            Account {
                thread: id,
                sampled_ns: sampled.get(&id).copied().unwrap_or(0),
                lost_ns: thread.totals.lost_weight.saturating_mul(period_ns),
                lost_samples: thread.totals.lost_samples,
                lost_weight: thread.totals.lost_weight,
                armed_ns: (cpu_ns > 0).then(|| cpu_ns.saturating_sub(unarmed_ns)),
                handler_ns: thread.totals.handler_ns,
                arming_ns: thread.totals.arming_ns,
                delivery_ns: thread.totals.delivery_ns,
                period_ns,
            }
        })
        .collect()
}

/// The rate that came out, where it is not the one asked for because samples would have taken more
/// than they may.
pub(super) fn rate(out: &mut String, profile: &Profile, accounts: &[Account]) {
    if let Some((came_out, asked)) = lowered(profile, accounts) {
        let text = format!(
            "{came_out:.0} Hz of {asked:.0} Hz: more samples would take more than they may (--max-overhead)"
        );
        line(out, "rate", &text);
    }
}

/// The same in a sentence.
pub(super) fn rate_said(profile: &Profile) -> Option<String> {
    let (came_out, _) = lowered(profile, &accounts(profile))?;
    Some(format!(
        "the rate was lowered to {came_out:.0} Hz: more samples would take more than --max-overhead allows here; a lower -F avoids this"
    ))
}

/// The rates that came out and that was asked for, Hz, if they differ.
fn lowered(profile: &Profile, accounts: &[Account]) -> Option<(f64, f64)> {
    let recording = &profile.recording;
    let (mut asked, mut came_out) = (0.0, 0.0);
    for account in accounts {
        let thread = &recording.threads[account.thread.index()];
        let pace = thread.armings.last().map_or(1, |arming| arming.periods);
        let time = account.sampled_ns as f64;
        let in_force_ns = account.period_ns.saturating_mul(pace).max(1);
        // What was asked of a process whose description was lost is not known.
        let asked_ns = match recording.processes[thread.process.index()].asked_period_ns {
            0 => in_force_ns,
            asked_ns => asked_ns,
        };
        asked += time / asked_ns as f64;
        came_out += time / in_force_ns as f64;
    }
    let time_s = accounts
        .iter()
        .map(|account| account.sampled_ns as f64 / 1e9);
    let time_s: f64 = time_s.sum();
    let is_lowered = time_s > 0.0 && came_out < asked * NEARLY;
    is_lowered.then(|| (came_out / time_s, asked / time_s))
}

/// Which triggers threads had, and why not better ones.
pub(super) fn triggers(out: &mut String, profile: &Profile) {
    let mut groups: BTreeMap<(u8, u32, u32), (Trigger, u64)> = BTreeMap::new();
    for thread in &profile.recording.threads {
        let mut refused = thread.armings.iter().map(|arming| arming.refused);
        let refused = refused.rfind(|errno| *errno != 0).unwrap_or(0);
        let trigger = trigger(thread);
        let signal = thread.armings.last().map_or(0, |arming| arming.signal);
        let group = groups
            .entry((trigger as u8, refused, signal))
            .or_insert((trigger, 0));
        group.1 += 1;
    }
    for ((_, refused, signal), (trigger, count)) in groups {
        let threads = plural(count, "thread", "threads");
        let step_down = match refused {
            0 => String::new(),
            errno => format!("; a better one was refused: {}", refusal(trigger, errno)),
        };
        let text = format!(
            "{}{} on {threads}{step_down}",
            name(trigger),
            raised(signal)
        );
        line(out, "trigger", &text);
    }
    let spared = profile
        .recording
        .threads
        .iter()
        .filter(|one| is_spared(one));
    let spared = spared.count() as u64;
    if spared > 0 {
        let threads = plural(spared, "thread", "threads");
        line(
            out,
            "",
            &format!(
                "{threads} had a timer for a while: with an event, context switches alone would take more than they may (--max-overhead)"
            ),
        );
    }
    if profile.recording.unarmed_threads > 0 {
        let threads = plural(profile.recording.unarmed_threads, "thread", "threads");
        line(
            out,
            "",
            &format!("{threads} could not be armed at all, and have no samples"),
        );
    }
}

/// What it was sampled by, but for a timer that stood in for its event.
fn trigger(thread: &Thread) -> Trigger {
    let mut latest = thread.armings.iter().rev();
    let last = latest.find(|arming| arming.has_event());
    let is_refused = thread.armings.last().is_some_and(|last| last.refused != 0);
    let last = last.filter(|_| is_spared(thread) && !is_refused);
    last.map_or_else(|| thread.trigger(), |event| event.trigger)
}

/// Whether it had a timer after an event, which nobody refused.
fn is_spared(thread: &Thread) -> bool {
    let is_it = |(one, next): (&Arming, &Arming)| {
        one.has_event() && (next.trigger, next.refused) == (Trigger::Timer, 0)
    };
    let later = thread.armings.iter().skip(1);
    thread.armings.iter().zip(later).any(is_it)
}

/// What threads could not see because a better trigger was refused, with the cure.
pub(super) fn refusals(profile: &Profile) -> Vec<String> {
    let mut found = BTreeSet::new();
    for thread in &profile.recording.threads {
        let mut refused = thread.armings.iter().map(|arming| arming.refused);
        let trigger = trigger(thread);
        let what = match trigger {
            Trigger::PerfUser => "time in the kernel may not be seen",
            Trigger::Timer => {
                "samples come no faster than the kernel's clock ticks, and without the kernel's stacks"
            }
            _ => continue,
        };
        if let Some(errno) = refused.rfind(|errno| *errno != 0) {
            let why = refusal(trigger, errno);
            found.insert(format!("{what}: {why}"));
        }
    }
    found.into_iter().collect()
}

fn name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::None => "none, but for context switches,",
        Trigger::PerfKernel => "perf event, user and kernel mode",
        Trigger::PerfUser => "perf event, user mode",
        Trigger::Timer => "CPU timer (counts in kernel ticks)",
        Trigger::Request => "requests",
    }
}

/// What it raises.
fn raised(signal: u32) -> String {
    let signal = i32::try_from(signal).unwrap_or(0);
    Signal::try_from(signal).map_or_else(|_| String::new(), |signal| format!(", by {signal},"))
}

/// Why a trigger was refused, and what would help.
fn refusal(granted: Trigger, errno: u32) -> String {
    let errno = nix::Error::from_raw(i32::try_from(errno).unwrap_or(0));
    let remedy = match errno {
        nix::Error::EACCES | nix::Error::EPERM if granted == Trigger::PerfUser => {
            "kernel mode needs kernel.perf_event_paranoid at 1 or below, or CAP_PERFMON"
        }
        nix::Error::EACCES | nix::Error::EPERM => {
            "perf events need kernel.perf_event_paranoid at 2 or below, and in a container a seccomp profile \
             that allows perf_event_open (or CAP_PERFMON)"
        }
        nix::Error::ETIMEDOUT => {
            "rsunwind, which has the right to open this event, did not answer in time: the machine was busy"
        }
        nix::Error::ENOSYS => "this kernel or sandbox has no perf_event_open",
        nix::Error::EMFILE => "too many open files: raise `ulimit -n`",
        nix::Error::ENFILE => "too many open files on the whole system: raise fs.file-max",
        nix::Error::ENOENT | nix::Error::ENODEV | nix::Error::EOPNOTSUPP => {
            "the kernel does not know this event"
        }
        nix::Error::ENOMEM => {
            "no more locked memory: raise `ulimit -l` or kernel.perf_event_mlock_kb"
        }
        _ => "",
    };
    match remedy {
        "" => errno.desc().to_owned(),
        remedy => format!("{} ({remedy})", errno.desc()),
    }
}

/// Below this CPU time, one sample more or less is more than two per cent.
const ENOUGH_PERIODS: u64 = 100;

/// The thread whose weight is furthest from its CPU time.
pub(super) fn worst(out: &mut String, profile: &Profile, accounts: &[Account]) {
    let known = accounts.iter().filter(|account| account.armed_ns.is_some());
    let worst = known
        .filter(|account| {
            account.armed_ns.unwrap_or(0) >= account.period_ns.saturating_mul(ENOUGH_PERIODS)
        })
        .map(|account| (deviation(account), account))
        .filter(|(deviation, _)| *deviation > 0.02)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let Some((_, account)) = worst else { return };
    let thread = named(profile, &profile.recording.threads[account.thread.index()]);
    let armed = account.armed_ns.unwrap_or(0);
    let lost = match account.lost_ns {
        0 => String::new(),
        lost => format!(", {} lost", share(lost, armed)),
    };
    let text = match account.sampled_ns.checked_sub(armed) {
        None => format!(
            "worst: {thread} delivered {} of its {}{lost}",
            share(account.sampled_ns, armed),
            duration(armed)
        ),
        Some(more) => format!(
            "worst: the samples of {thread} stand for {} more than the {} that it used{lost}",
            duration(more),
            duration(armed)
        ),
    };
    line(out, "", &text);
}

fn deviation(account: &Account) -> f64 {
    let armed = account.armed_ns.unwrap_or(0).max(1) as f64;
    (account.sampled_ns as f64 / armed - 1.0).abs()
}

fn named(profile: &Profile, thread: &Thread) -> String {
    let process = &profile.recording.processes[thread.process.index()];
    let name = if thread.name.is_empty() {
        process.name()
    } else {
        &thread.name
    };
    format!(
        "thread {name} ({}) of {} ({})",
        thread.tid,
        process.name(),
        process.pid
    )
}
