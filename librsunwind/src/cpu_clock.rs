//! The CPU time of a thread at its samples, for which the kernel is asked only now and then.
//!
//! Who asks makes the kernel settle what the thread has used of its turn on the processor, and a
//! turn that is over ends at once. Left alone it ends at the kernel's tick. Asked at each sample, a
//! thread that others compete with is hardly ever found running by a tick, and what goes by ticks,
//! as `ITIMER_PROF` does, stands still. So between two readings each sample stands for as much time
//! as those before it did on the average.

/// So much CPU time may pass between two readings, ns: ten ticks at 250 Hz, of which a reading
/// takes less than one.
const UNASKED_NS: u64 = 40_000_000;

/// What is known of a thread's CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuClock {
    /// At the last reading, ns.
    read_ns: u64,
    /// Samples since then.
    samples: u64,
    /// What each of them stands for, ns; 0 if nothing is known.
    each_ns: u64,
}

impl CpuClock {
    /// CPU time at a sample that comes one period after the one before; `None` if the kernel is to
    /// be asked.
    pub fn at_sample(&mut self, period_ns: u64) -> Option<u64> {
        let samples = self.samples.saturating_add(1);
        if self.each_ns == 0 || samples.saturating_mul(period_ns) >= UNASKED_NS {
            return None;
        }
        self.samples = samples;
        let since_ns = samples.saturating_mul(self.each_ns);
        Some(self.read_ns.saturating_add(since_ns))
    }

    /// The kernel has said that CPU time at a sample, of which it is known whether it comes one
    /// period after the one before.
    pub fn read(&mut self, cpu_ns: u64, period_ns: u64, is_next: bool) {
        let samples = self.samples.saturating_add(1);
        let since_ns = cpu_ns.saturating_sub(self.read_ns);
        self.each_ns = match self.each_ns {
            0 => period_ns,
            // The scheduler's work and stolen time make the two differ.
            _ if is_next => since_ns
                .checked_div(samples)
                .unwrap_or(0)
                // `clamp` could panic.
                .max(period_ns >> 1)
                .min(period_ns.saturating_mul(2)),
            each_ns => each_ns,
        };
        (self.read_ns, self.samples) = (cpu_ns, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Samples every `each_ns` by a clock that runs `true_ns` meanwhile; gives the readings and
    /// what was furthest off.
    fn run(samples: u64, period_ns: u64, true_ns: u64) -> (u64, u64) {
        let mut clock = CpuClock::default();
        let (mut readings, mut off_ns) = (0, 0);
        for sample in 1..=samples {
            let cpu_ns = sample * true_ns;
            match clock.at_sample(period_ns) {
                Some(believed_ns) => off_ns = cpu_ns.abs_diff(believed_ns).max(off_ns),
                None => {
                    clock.read(cpu_ns, period_ns, true);
                    readings += 1;
                }
            }
        }
        (readings, off_ns)
    }

    #[test]
    fn the_kernel_is_asked_every_forty_milliseconds() {
        assert_eq!(run(1_000, MS, MS), (25, 0));
        assert_eq!(run(10_000, MS / 10, MS / 10), (25, 0));
        assert_eq!(run(50, 40 * MS, 40 * MS), (50, 0), "at each");
    }

    #[test]
    fn what_differs_from_the_events_time_is_made_up_for() {
        // Only before the second reading it is not known.
        assert_eq!(run(41, MS, MS * 9 / 10), (2, 39 * MS / 10));
        let mut clock = CpuClock::default();
        for sample in 1..=1_000 {
            let cpu_ns = sample * MS * 9 / 10;
            match clock.at_sample(MS) {
                Some(believed_ns) if sample > 41 => assert_eq!(believed_ns, cpu_ns),
                Some(_) => {}
                None => clock.read(cpu_ns, MS, true),
            }
        }
    }

    #[test]
    fn a_sample_for_many_periods_says_nothing_of_one() {
        let mut clock = CpuClock::default();
        clock.read(5 * MS, MS, false);
        clock.read(500 * MS, MS, false);
        assert_eq!(clock.at_sample(MS), Some(501 * MS));
        clock.read(900 * MS, MS, true);
        assert_eq!(clock.at_sample(MS), Some(902 * MS), "nor is it believed");
    }
}
