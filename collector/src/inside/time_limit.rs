//! What is left of the time limit of a call that is made again: the kernel has noted it when the
//! thread was stopped, and would begin to count when it goes on.

use nix::libc::{self, user_regs_struct};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// The result of a call that the kernel makes again (`ERESTARTNOHAND`).
const MADE_AGAIN: i64 = -514;

/// See the module.
#[derive(Debug)]
pub(super) struct TimeLimit {
    /// Of seconds and a fraction of one.
    address: u64,
    /// Of the fraction, ns.
    unit_ns: u64,
    noted: Instant,
}

impl TimeLimit {
    /// Of a thread that has just stopped with those registers, if it is in such a call.
    pub(super) fn of(user: &user_regs_struct) -> Option<Self> {
        let (address, unit_ns) = match user.orig_rax.cast_signed() {
            libc::SYS_select => (user.r8, 1000),
            libc::SYS_pselect6 => (user.r8, 1),
            libc::SYS_ppoll => (user.rdx, 1),
            _ => return None,
        };
        let is_limited = address != 0 && user.rax.cast_signed() == MADE_AGAIN;
        is_limited.then(|| Self {
            address,
            unit_ns,
            noted: Instant::now(),
        })
    }

    /// The time since then has passed.
    pub(super) fn pass(&self, memory: &File) {
        let mut bytes = [0; 16];
        if memory.read_exact_at(&mut bytes, self.address).is_ok() {
            let passed_ns = u64::try_from(self.noted.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let less = shortened(u128::from_le_bytes(bytes), self.unit_ns, passed_ns);
            // Where it cannot be written, the call ends later by that.
            let _ = memory.write_all_at(&less.to_le_bytes(), self.address);
        }
    }
}

/// Seconds, and above them the fraction, less so many ns; never so little that it would end early.
fn shortened(limit: u128, unit_ns: u64, by_ns: u64) -> u128 {
    const SECOND_NS: u64 = 1_000_000_000;
    let (seconds, fraction) = (limit as u64, (limit >> 64) as u64);
    let fraction_ns = fraction.saturating_mul(unit_ns);
    let all_ns = seconds
        .saturating_mul(SECOND_NS)
        .saturating_add(fraction_ns);
    let left_ns = all_ns.saturating_sub(by_ns);
    let fraction = (left_ns % SECOND_NS).div_ceil(unit_ns);
    let per_second = SECOND_NS / unit_ns;
    let seconds = left_ns / SECOND_NS + fraction / per_second;
    u128::from(seconds) | u128::from(fraction % per_second) << 64
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn what_has_passed_is_taken_off() {
        let limit = |seconds: u64, fraction: u64| u128::from(seconds) | u128::from(fraction) << 64;
        assert_eq!(shortened(limit(2, 5), 1, 6), limit(1, 999_999_999));
        assert_eq!(shortened(limit(2, 5), 1000, 5000), limit(2, 0));
        assert_eq!(shortened(limit(2, 0), 1000, 1), limit(2, 0), "not early");
        assert_eq!(shortened(limit(2, 0), 1000, 1_999), limit(1, 999_999));
        assert_eq!(shortened(limit(0, 7), 1000, 8000), 0);
        assert_eq!(shortened(limit(u64::MAX, u64::MAX), 1000, u64::MAX), 0);
    }
}
