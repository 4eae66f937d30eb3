//! How many sampling periods of CPU time a thread has used since its last sample: the weight of the
//! next one.
//!
//! The kernel's samples are not counted for this. A perf event stands still while the scheduler
//! switches threads, and runs on while an interrupt or the hypervisor has the processor: programs
//! that sleep often would be a tenth too light, disturbed ones too heavy. The CPU clock of the
//! thread is what the user pays for, so the weights add up to it ([`crate::cpu_clock`] has it).

/// Counts periods of a thread's CPU time.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuMeter {
    start_ns: u64,
    delivered: u64,
}

impl CpuMeter {
    /// Starts to count at that CPU time of the thread.
    #[must_use]
    pub fn starting_at(cpu_ns: u64) -> Self {
        Self {
            start_ns: cpu_ns,
            delivered: 0,
        }
    }

    /// CPU time since it started at that CPU time of the thread, ns.
    pub fn used_ns(&self, cpu_ns: u64) -> u64 {
        cpu_ns.saturating_sub(self.start_ns)
    }

    /// Counts periods as given that came by other means: a timer says itself how many it stands
    /// for.
    pub fn give(&mut self, weight: u64) {
        self.delivered = self.delivered.saturating_add(weight);
    }

    /// Periods used up by now, to the nearest, that were not given before. Usually 1; 0 if the
    /// event came a little early.
    pub fn take(&mut self, cpu_ns: u64, period_ns: u64) -> u64 {
        let used = self.used_ns(cpu_ns).saturating_add(period_ns >> 1);
        let due = used
            .checked_div(period_ns)
            .unwrap_or(0)
            .saturating_sub(self.delivered);
        self.delivered = self.delivered.saturating_add(due);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_add_up_to_the_cpu_time() {
        let mut meter = CpuMeter::starting_at(700);
        let mut given = 0;
        for step in 1..=1000u64 {
            // Events that come 3 % early, as when interrupts are not counted.
            let cpu = 700 + step * 970;
            given += meter.take(cpu, 1000);
            assert!((given * 1000).abs_diff(step * 970) <= 500);
        }
        assert_eq!(given, 970);
        assert_eq!(meter.take(700 + 970_000 + 50_000, 1000), 50);
        assert_eq!(meter.take(0, 1000), 0);
        meter.give(7);
        assert_eq!(meter.take(700 + 970_000 + 50_000 + 10_000, 1000), 3);
    }
}
