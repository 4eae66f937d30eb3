//! Windows of a recording that goes on, read while it grows and its beginning is taken away: all
//! weight is in one of them.

use super::joined::{IN_KERNEL, PROGRAM, SP, taken, with_modules};
use super::*;
use crate::recording::example::recording;
use engine::wire::chunk::FROM_RING;
use engine::wire::sample::SampleHead;

/// A call that is sampled from 100 to 200 in the kernel, every 10, and lets the signal in at its
/// end, whose clock says one less than there are samples; and later stacks. With when each is
/// written.
fn long_call() -> Vec<(u64, Chunk)> {
    let kernel = (100..200).step_by(10).map(|at| {
        let chunk = Chunk::new(42, 42, FROM_RING | at);
        (at, taken(chunk, at, PROGRAM + 0x92, SP, &IN_KERNEL))
    });
    let user = [(50, 5), (200, 9), (260, 6), (400, 1)].map(|(at, weight)| {
        let head = SampleHead {
            sp: SP,
            ..head(at, weight)
        };
        let chunk = Chunk::new(42, 42, at).sample(head, &[PROGRAM + 0x90]);
        (at, chunk)
    });
    kernel.chain(user).collect()
}

#[test]
fn a_call_that_outlasts_windows_has_its_weight_once() {
    for length in (10..230).step_by(7) {
        for settled in [0, 3, 30, 90] {
            let (mut sum, mut sent) = (0, Sent::new());
            let (mut last, mut before) = (0, 0);
            while last < u64::MAX {
                let until = if last > 420 { u64::MAX } else { last + length };
                let window = Window {
                    after_ns: last,
                    until_ns: until,
                    late_after_ns: before,
                    late_until_ns: if until == u64::MAX { until } else { last },
                };
                let there = |at: u64| at <= until.saturating_add(settled) && at > before;
                let mut chunks = vec![with_modules()];
                let written = long_call().into_iter().filter(|(at, _)| there(*at));
                chunks.extend(written.map(|(_, chunk)| chunk));
                let contents = Contents::of_bytes("x.rsu", recording(&chunks)).unwrap();
                let read = correlate(contents, window, &mut sent).unwrap();
                sum += read.samples.iter().map(|one| one.weight).sum::<u64>();
                (before, last) = (last, until);
            }
            assert_eq!(sum, 5 + 9 + 6 + 1, "{length} long, {settled} settled");
        }
    }
}
