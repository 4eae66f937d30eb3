//! Windows of a recording that goes on, read while it grows and its beginning is taken away: all
//! weight is in one of them.

use super::joined::{IN_KERNEL, PROGRAM, SP, taken, with_modules};
use super::*;
use crate::recording::example::recording;
use engine::wire::chunk::{FROM_RING, FROM_SWITCHES};
use engine::wire::kernel::KernelHead;
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
    adds_up_to(5 + 9 + 6 + 1, &long_call());
}

/// A thread that unwinds itself in user mode, where it seldom is, and is copied in the kernel every
/// 10 from 60 to 200. What it says of itself stands for the kernel's time, too.
#[test]
fn what_was_copied_beside_a_thread_has_its_weight_once() {
    let copies = (60..200).step_by(10).map(|at| {
        let mut chunk = Chunk::new(42, 42, FROM_SWITCHES | at);
        (chunk.info.process_key, chunk.info.thread_key) = (41_900, 41_900);
        let half = KernelHead {
            cursor: at,
            time_ns: at,
            user_ip: 0x1010,
            user_sp: SP,
            ..KernelHead::default()
        };
        let user = SampleHead {
            nonce: at,
            sp: SP,
            ..head(at, 1)
        };
        let chunk = chunk.kernel(half, &IN_KERNEL).sample(user, &[0x1010]);
        (at, chunk)
    });
    let own = [(50, 1, 5), (205, 2, 16), (260, 3, 6), (400, 4, 1)].map(|(at, nonce, weight)| {
        let head = SampleHead {
            nonce,
            ..head(at, weight)
        };
        (at, Chunk::new(42, 42, at).sample(head, &[PROGRAM + 0x90]))
    });
    adds_up_to(5 + 16 + 6 + 1, &copies.chain(own).collect::<Vec<_>>());
}

/// Windows of any length have that weight together, of what was written then.
fn adds_up_to(weight: u64, all: &[(u64, Chunk)]) {
    for length in (10..230).step_by(7) {
        for settled in [0, 3, 30, 90] {
            let (mut sum, mut sent) = (0, Sent::default());
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
                let written = all.iter().filter(|(at, _)| there(*at));
                chunks.extend(written.map(|(_, chunk)| chunk.clone()));
                let contents = Contents::of_bytes("x.rsu", recording(&chunks)).unwrap();
                let read = correlate(contents, window, &mut sent).unwrap();
                sum += read.samples.iter().map(|one| one.weight).sum::<u64>();
                (before, last) = (last, until);
            }
            assert_eq!(sum, weight, "{length} long, {settled} settled");
        }
    }
}
