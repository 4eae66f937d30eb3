//! How much memory rings of context switches may take for each processor: the kernel lets an
//! ordinary user lock only so much for all rings, and the program's own threads need some of it,
//! too.

use super::{LARGEST_SWITCH_RING, RECORD_RING, SMALLEST_RING, processors};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::geteuid;
use std::fs;

/// Bytes for the rings of a processor, at most.
pub(crate) fn share() -> usize {
    let processors = processors().len().max(1);
    if geteuid().is_root() {
        return LARGEST_SWITCH_RING + RECORD_RING;
    }
    let each = fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb");
    let each = each.ok().and_then(|text| text.trim().parse::<usize>().ok());
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    bounded(each.unwrap_or(0) << 10, limit, processors)
}

/// Half of what is granted to a user: `each` for each processor, and the limit of the process.
fn bounded(each: usize, limit: usize, processors: usize) -> usize {
    let half = (each / 2).saturating_add(limit / 2 / processors);
    half.clamp(SMALLEST_RING, LARGEST_SWITCH_RING + RECORD_RING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_keeps_half_for_the_program() {
        assert_eq!(bounded(516 << 10, 64 << 10, 2), (258 + 16) << 10);
        assert_eq!(
            bounded(516 << 10, usize::MAX, 2),
            LARGEST_SWITCH_RING + RECORD_RING
        );
        assert_eq!(bounded(0, 0, 64), SMALLEST_RING);
    }
}
