//! What each thread's own account says: triggers granted and refused, weight against CPU time, and what the handler cost.

use super::{line, plural};
use crate::profile::Profile;
use crate::recording::{Recording, Thread, ThreadId};
use crate::report::{duration, share};
use engine::wire::sample::Trigger;
use std::collections::{BTreeMap, HashMap};

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
    armed_ns: Option<u64>,
    unarmed_ns: u64,
    handler_ns: u64,
    period_ns: u64,
}

/// One account per thread.
pub(super) fn accounts(profile: &Profile) -> Vec<Account> {
    let mut sampled: HashMap<ThreadId, u64> = HashMap::new();
    for sample in &profile.samples {
        let sum = sampled.entry(sample.thread).or_default();
        *sum = sum.saturating_add(profile.time_ns(sample));
    }
    let before = before_exec(&profile.recording);
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
                unarmed_ns: unarmed_ns.saturating_sub(before[index]),
                handler_ns: thread.totals.handler_ns,
                period_ns,
            }
        })
        .collect()
}

/// CPU time that each thread's clock showed at the end of the program run before, ns, in the same process: its clock goes on through exec,
/// and that run has an account of its own.
fn before_exec(recording: &Recording) -> Vec<u64> {
    let process = |thread: &Thread| &recording.processes[thread.process.index()];
    let clock = |thread: &Thread| (process(thread).pid, process(thread).start_ticks, thread.tid);
    let mut runs: BTreeMap<_, u64> = BTreeMap::new();
    for thread in &recording.threads {
        let end = runs
            .entry((clock(thread), process(thread).key))
            .or_default();
        *end = thread.cpu_ns().max(*end);
    }
    let threads = recording.threads.iter();
    let before = threads.map(|thread| {
        let clock = clock(thread);
        let runs = runs.range((clock, 0)..(clock, process(thread).key));
        runs.last().map_or(0, |(_, end)| *end)
    });
    before.collect()
}

/// Which triggers threads had, and why not better ones.
pub(super) fn triggers(out: &mut String, profile: &Profile) {
    let mut groups: BTreeMap<(u8, u32), (Trigger, u64)> = BTreeMap::new();
    for thread in &profile.recording.threads {
        let mut refused = thread.armings.iter().map(|arming| arming.refused);
        let refused = refused.rfind(|errno| *errno != 0).unwrap_or(0);
        let trigger = thread.trigger();
        let group = groups
            .entry((trigger as u8, refused))
            .or_insert((trigger, 0));
        group.1 += 1;
    }
    for ((_, refused), (trigger, count)) in groups {
        let threads = plural(count, "thread", "threads");
        let step_down = match refused {
            0 => String::new(),
            errno => format!("; a better one was refused: {}", refusal(trigger, errno)),
        };
        let text = format!("{} on {threads}{step_down}", name(trigger));
        line(out, "trigger", &text);
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

fn name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::None => "none, but for context switches,",
        Trigger::PerfKernel => "perf event, user and kernel mode",
        Trigger::PerfUser => "perf event, user mode",
        Trigger::Timer => "CPU timer (counts in kernel ticks)",
        Trigger::Request => "requests",
    }
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

/// Delivered weight against CPU time × rate, and CPU time before arming.
pub(super) fn coverage(out: &mut String, profile: &Profile, accounts: &[Account]) {
    let known = accounts.iter().filter(|account| account.armed_ns.is_some());
    let sum = |value: fn(&Account) -> u64| {
        known
            .clone()
            .fold(0, |sum: u64, account| sum.saturating_add(value(account)))
    };
    let armed = sum(|account| account.armed_ns.unwrap_or(0));
    let sampled = sum(|account| account.sampled_ns);
    if armed > 0 {
        let text = format!(
            "{} of {} CPU time while armed",
            share(sampled, armed),
            duration(armed)
        );
        line(out, "covered", &text);
    }
    let worst = known
        .filter(|account| {
            account.armed_ns.unwrap_or(0) >= account.period_ns.saturating_mul(ENOUGH_PERIODS)
        })
        .map(|account| (deviation(account), account))
        .filter(|(deviation, _)| *deviation > 0.02)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    if let Some((_, account)) = worst {
        let thread = &profile.recording.threads[account.thread.index()];
        let armed = account.armed_ns.unwrap_or(0);
        let lost = match account.lost_ns {
            0 => String::new(),
            lost => format!(", {} lost", share(lost, armed)),
        };
        let text = format!(
            "worst: {} delivered {} of its {}{lost}",
            named(profile, thread),
            share(account.sampled_ns, armed),
            duration(armed)
        );
        line(out, "", &text);
    }
    let unarmed = accounts.iter().fold(0, |sum: u64, account| {
        sum.saturating_add(account.unarmed_ns)
    });
    if unarmed > 0 {
        let text = format!("{} before threads were armed", duration(unarmed));
        line(out, "not seen", &text);
    }
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

/// Time in the handler.
pub(super) fn cost(out: &mut String, profile: &Profile, accounts: &[Account]) {
    let sum = |value: fn(&Account) -> u64| {
        accounts
            .iter()
            .fold(0, |sum: u64, account| sum.saturating_add(value(account)))
    };
    let handler = sum(|account| account.handler_ns);
    let samples = profile.samples.len() as u64;
    if handler == 0 || samples == 0 {
        return;
    }
    let cpu = sum(|account| account.armed_ns.unwrap_or(0));
    let part = match cpu {
        0 => String::new(),
        cpu => format!(", {:.2} % of CPU time", 100.0 * handler as f64 / cpu as f64),
    };
    let text = format!(
        "{} in the handler{part}, {} a sample",
        duration(handler),
        duration(handler / samples)
    );
    line(out, "cost", &text);
}
