//! What became of the kernel's samples: each is in exactly one class ([`KernelHalf`]), and the
//! account adds up.
//!
//! Not here: how they are joined with user stacks (`samples`, `join`).

use crate::recording::{KernelHalf, Recording};
use engine::wire::offer::CPU_EVENT;
use std::fmt;

/// How many kernel samples of CPU time there are of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each but the last is the class of KernelHalf of that name"
)]
pub struct KernelAccount {
    pub merged: u64,
    pub reused: u64,
    pub shielded: u64,
    pub late: u64,
    pub profiler: u64,
    pub exit: u64,
    pub orphan: u64,
    /// Samples, of kernel and user mode, that the kernel could not write because a ring was full.
    pub lost: u64,
}

impl KernelAccount {
    /// Kernel samples recorded.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        self.classes().iter().map(|(_, count)| count).sum()
    }

    /// Those joined with a user stack.
    #[must_use]
    pub fn joined(&self) -> u64 {
        self.merged + self.reused + self.shielded
    }

    /// Each class and its count, in the order in which they are shown.
    #[must_use]
    pub fn classes(&self) -> [(KernelHalf, u64); 7] {
        [
            (KernelHalf::Merged, self.merged),
            (KernelHalf::Reused, self.reused),
            (KernelHalf::Shielded, self.shielded),
            (KernelHalf::Late, self.late),
            (KernelHalf::Profiler, self.profiler),
            (KernelHalf::Exit, self.exit),
            (KernelHalf::Orphan, self.orphan),
        ]
    }

    /// Adds one of that class.
    pub fn add(&mut self, half: KernelHalf) {
        match half {
            KernelHalf::None => {}
            KernelHalf::Merged => self.merged += 1,
            KernelHalf::Reused => self.reused += 1,
            KernelHalf::Shielded => self.shielded += 1,
            KernelHalf::Late => self.late += 1,
            KernelHalf::Profiler => self.profiler += 1,
            KernelHalf::Exit => self.exit += 1,
            KernelHalf::Orphan => self.orphan += 1,
        }
    }
}

/// `merged 79, reused 1936, …, lost 0`: every figure, always in the same order.
impl fmt::Display for KernelAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (half, count) in self.classes() {
            write!(f, "{} {count}, ", half.name())?;
        }
        write!(f, "lost {}", self.lost)
    }
}

impl Recording {
    /// What became of the kernel's samples of CPU time.
    #[must_use]
    pub fn kernel_account(&self) -> KernelAccount {
        let lost = self.threads.iter().map(|thread| thread.totals.lost_in_ring);
        let of_events = self.sources.iter().map(|source| source.lost);
        let of_events = of_events.fold(0, u64::saturating_add);
        let mut account = KernelAccount {
            lost: lost.fold(0, u64::saturating_add).saturating_sub(of_events),
            ..KernelAccount::default()
        };
        let cpu_time = self.samples.iter().filter(|s| s.event == CPU_EVENT);
        cpu_time.for_each(|sample| account.add(sample.kernel));
        account
    }
}
