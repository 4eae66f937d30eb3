//! What has no samples where a process is recorded from inside: threads until they were found,
//! those that may not be sampled, and children.
//!
//! The kernel knows what the process used, and the events what their threads used.

use crate::numbers::{duration, plural};
use crate::processes::{self, Stat};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

/// Less is not worth a word: the kernel's ticks, and what the clocks differ by, ns.
const LEAST_NS: u64 = 10_000_000;
/// Nor is one of this many parts.
const LEAST_PART: u64 = 100;

/// What was used until now, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    own: u64,
    /// By children that were waited for.
    children: u64,
}

/// What a reader of the recording should know.
#[derive(Clone, Debug)]
pub struct Lacks {
    /// Of this process.
    pub pid: u32,
    /// From before the library came into it (`CLOCK_MONOTONIC`, ns).
    pub began_ns: u64,
    /// In sentences.
    pub sentences: Vec<String>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Missed {
    pid: u32,
    began_ns: u64,
    first: Used,
    last: Used,
    /// By children that began meanwhile and run, ns.
    running: u64,
}

impl Missed {
    /// From now on; the library came in after that time (`CLOCK_MONOTONIC`, ns).
    pub(super) fn begin(pid: u32, began_ns: u64) -> Self {
        let used = Used::of(pid).unwrap_or_default();
        Self {
            pid,
            began_ns,
            first: used,
            last: used,
            running: 0,
        }
    }

    /// Until now, at least; a process that has ended used what it had at the last look.
    pub(super) fn look(&mut self) {
        self.last = Used::of(self.pid).unwrap_or(self.last);
    }

    /// Until now.
    pub(super) fn end(&mut self) {
        self.look();
        let pids = processes::all();
        let began = pids.filter(|pid| {
            let stat = Stat::read(pid.cast_unsigned());
            stat.and_then(|stat| stat.parent()) == Some(self.pid)
                && processes::born_ns(*pid).is_some_and(|born_ns| born_ns >= self.began_ns)
        });
        self.running = began.filter_map(cpu_ns).sum();
    }

    /// What is to be said of it: `counted_ns` is what the events counted, so many threads had none,
    /// and the program is another one by now, if it has not ended.
    pub(super) fn lacks(&self, counted_ns: u64, blocked: usize, is_another: bool) -> Lacks {
        let mut sentences = self.times(counted_ns);
        if is_another && Stat::read(self.pid).is_some_and(|stat| !stat.has_ended()) {
            let name = self.pid.cast_signed();
            let name = processes::name(name, name);
            sentences.push(format!(
                "its process runs another program by now, {}, which is not recorded",
                String::from_utf8_lossy(&name)
            ));
        }
        if blocked > 0 {
            let threads = plural(blocked as u64, "thread blocks", "threads block");
            let were = if blocked == 1 { "was" } else { "were" };
            sentences.push(format!(
                "{threads} SIGURG, or wait under another mask or a filter, and {were} not sampled"
            ));
        }
        Lacks {
            pid: self.pid,
            began_ns: self.began_ns,
            sentences,
        }
    }

    fn times(&self, counted_ns: u64) -> Vec<String> {
        let since_first = |of: fn(Used) -> u64| of(self.last).saturating_sub(of(self.first));
        let own = since_first(|used| used.own);
        let uncounted = own.saturating_sub(counted_ns);
        let children = since_first(|used| used.children).saturating_add(self.running);
        let is_much = |ns: u64| ns >= LEAST_NS && ns.saturating_mul(LEAST_PART) >= own;
        let uncounted = is_much(uncounted).then(|| {
            format!(
                "{} of the {} of CPU time that it used have no sample: of threads before they were found, or that may not be sampled",
                duration(uncounted),
                duration(own)
            )
        });
        let children = is_much(children).then(|| {
            format!(
                "its children used {} of CPU time, and are not recorded: without --how inside they are",
                duration(children)
            )
        });
        uncounted.into_iter().chain(children).collect()
    }
}

impl Used {
    fn of(pid: u32) -> Option<Self> {
        Some(Self {
            own: cpu_ns(pid.cast_signed())?,
            children: Stat::read(pid)?.children_ns()?,
        })
    }
}

/// What all threads of a process used, those that have ended included.
fn cpu_ns(pid: i32) -> Option<u64> {
    let clock: ClockId = clock_getcpuclockid(Pid::from_raw(pid)).ok()?;
    let time = clock.now().ok()?;
    let ns = u64::try_from(time.tv_nsec()).ok()?;
    Some(u64::try_from(time.tv_sec()).ok()? * 1_000_000_000 + ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_much_is_said() {
        let missed = |own: u64, children: u64, running: u64| Missed {
            pid: 1,
            began_ns: 0,
            first: Used {
                own: 5_000_000_000,
                children: 7_000_000_000,
            },
            last: Used {
                own: 5_000_000_000 + own,
                children: 7_000_000_000 + children,
            },
            running,
        };
        let second = 1_000_000_000;
        let none: [&str; 0] = [];
        assert_eq!(missed(second, 0, 0).times(second), none);
        // Of a guest the events count more.
        assert_eq!(missed(second, 0, 0).times(2 * second), none);
        assert_eq!(missed(second, 0, 0).times(second - 9_000_000), none);
        assert_eq!(missed(2 * second, 15_000_000, 0).times(2 * second), none);
        let said = missed(second, second, second).times(second / 2);
        let [own, children] = &said[..] else {
            panic!("{said:?}");
        };
        assert!(own.starts_with("500 ms of the 1.00 s of CPU time"), "{own}");
        assert!(
            children.starts_with("its children used 2.00 s"),
            "{children}"
        );
    }

    #[test]
    fn the_kernel_knows_what_was_used() {
        let own = std::process::id();
        let mut missed = Missed::begin(own, 0);
        let until = cpu_ns(own.cast_signed()).unwrap() + 20_000_000;
        while cpu_ns(own.cast_signed()).unwrap() < until {}
        missed.end();
        let said = missed.lacks(0, 2, false).sentences;
        assert!(said[0].contains("have no sample"), "{said:?}");
        assert!(
            said.last().unwrap().starts_with("2 threads block"),
            "{said:?}"
        );
    }
}
