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
    adds_up_to(5 + 9 + 6 + 1, 0, &long_call());
}

/// A thread that unwinds itself in user mode, where it seldom is, and is copied in the kernel every
/// 10 from 60 to 200; with what it says of itself, which stands for the kernel's time, too.
fn copied_beside(own: &[(u64, u64)]) -> Vec<(u64, Chunk)> {
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
    let own = own.iter().zip(1..).map(|((at, weight), nonce)| {
        let head = SampleHead {
            nonce,
            ..head(*at, *weight)
        };
        let chunk = Chunk::new(42, 42, *at);
        (*at, chunk.sample(head, &[PROGRAM + 0x90]))
    });
    copies.chain(own).collect()
}

#[test]
fn what_was_copied_beside_a_thread_has_its_weight_once() {
    let own = [(50, 5), (205, 16), (260, 6), (400, 1)];
    adds_up_to(5 + 16 + 6 + 1, 50, &copied_beside(&own));
}

/// Until then the thread has the name that the kernel's records give it.
#[test]
fn so_it_has_where_the_thread_says_nothing_of_itself_until_later() {
    let own = [(205, 16), (260, 6), (400, 1)];
    adds_up_to(16 + 6 + 1, 205, &copied_beside(&own));
}

/// Windows of any length have that weight together, of what was written then. What the thread says
/// of itself at some time is kept.
fn adds_up_to(weight: u64, says_ns: u64, all: &[(u64, Chunk)]) {
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
                let mut kept = with_modules();
                if says_ns > until.saturating_add(settled) {
                    (kept.info.tid, kept.info.thread_key) = (0, 0);
                }
                let mut named = thread(Chunk::new(42, 42, FROM_SWITCHES), 1, b"by the kernel");
                (named.info.process_key, named.info.thread_key) = (41_900, 41_900);
                let mut chunks = vec![kept, named];
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

/// What is passed over outside of a window is on the stacks inside of it.
#[test]
fn stacks_in_windows_are_those_of_the_whole() {
    let (mut seed, mut stack) = (1u64, Vec::new());
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut chunk = Chunk::new(42, 42, 7);
    for nonce in 1..300 {
        stack.truncate(stack.len() - random(stack.len() as u64 + 1) as usize);
        stack.extend((0..random(6)).map(|_| PROGRAM + random(9)));
        let leaf_first: Vec<u64> = stack.iter().rev().copied().collect();
        let head = SampleHead {
            nonce,
            ..head(nonce * 10, 1)
        };
        chunk = chunk.sample(head, &leaf_first);
    }
    let bytes = recording(&[with_modules(), chunk]);
    let stacks_of = |window| {
        let contents = Contents::of_bytes("x.rsu", bytes.clone()).unwrap();
        let read = correlate(contents, window, &mut Sent::default()).unwrap();
        let frames = |sample: &RawSample| {
            let parent = |id: &StackId| read.stacks[id.index()].parent;
            let all = std::iter::successors(sample.stack, parent);
            let frame = |id: StackId| read.frames[read.stacks[id.index()].frame.index()];
            (sample.time_ns, all.map(frame).collect::<Vec<_>>())
        };
        read.samples.iter().map(frames).collect::<Vec<_>>()
    };
    let whole = stacks_of(Window::WHOLE);
    assert!(whole.len() == 299 && whole.iter().any(|(_, frames)| frames.len() > 10));
    for length in [10, 70, 500, 1400] {
        let mut all = Vec::new();
        for after_ns in (0..3000).step_by(length) {
            let window = Window {
                after_ns,
                until_ns: after_ns + length as u64,
                late_after_ns: after_ns.saturating_sub(length as u64),
                late_until_ns: after_ns,
            };
            all.extend(stacks_of(window));
        }
        assert_eq!(all, whole, "windows of {length}");
    }
}
