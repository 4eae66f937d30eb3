//! Threads that unwind themselves in user mode and are copied in the kernel: nothing counts twice.

use super::*;
use crate::recording::example::recording;
use engine::wire::chunk::FROM_SWITCHES;
use engine::wire::kernel::KernelHead;
use engine::wire::sample::SampleHead;

const KERNEL: [u64; 2] = [0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020];

/// Copies of a thread that the kernel saw begin: when, weight, and whether in the kernel.
fn copies(tid: u32, copies: &[(u64, u64, bool)]) -> Chunk {
    let mut chunk = Chunk::new(42, tid, FROM_SWITCHES | 1 << 40);
    (chunk.info.process_key, chunk.info.thread_key) = (41_900, 41_900);
    for ((time_ns, weight, in_kernel), cursor) in copies.iter().zip(1..) {
        let half = KernelHead {
            cursor,
            time_ns: *time_ns,
            user_ip: 0x1010,
            user_sp: 0x7000,
            more: weight.saturating_sub(1),
            ..KernelHead::default()
        };
        if *in_kernel {
            chunk = chunk.kernel(half, &KERNEL);
        }
        let user = SampleHead {
            nonce: cursor,
            sp: 0x7000,
            ..head(*time_ns, *weight)
        };
        chunk = chunk.sample(user, &[0x1010, 0x20]);
    }
    chunk
}

/// Samples of the thread's own, which it counts: when and weight.
fn own(tid: u32, samples: &[(u64, u64)]) -> Chunk {
    let samples = samples.iter().zip(1..);
    samples.fold(
        Chunk::new(42, tid, 0),
        |chunk, ((time_ns, weight), nonce)| {
            let user = SampleHead {
                nonce,
                ..head(*time_ns, *weight)
            };
            chunk.sample(user, &[0x30])
        },
    )
}

/// When, weight and whether it ends in the kernel, by time.
fn found(chunks: &[Chunk]) -> (Recording, Vec<(u64, u64, bool)>) {
    let found = read_bytes("x.rsu", recording(chunks)).unwrap();
    assert_eq!(found.damage_count(), 0);
    let samples = found.samples.iter();
    let samples = samples.map(|s| (s.time_ns, s.weight, s.kernel != KernelHalf::None));
    let mut samples: Vec<_> = samples.collect();
    samples.sort_unstable();
    (found, samples)
}

#[test]
fn what_was_copied_meanwhile_is_not_in_the_threads_own_samples() {
    let copied = [
        (42_010, 3, false), // before the thread was armed
        (42_150, 2, true),
        (42_250, 3, true),
        (42_450, 1, true),
    ];
    let own = own(42, &[(42_100, 1), (42_200, 5), (42_300, 2), (42_400, 4)]);
    let (recording, samples) = found(&[copies(42, &copied), own]);
    assert_eq!(
        samples,
        [
            (42_010, 3, false),
            (42_100, 1, false),
            (42_150, 2, true),
            (42_200, 3, false),
            (42_250, 3, true),
            // 2 were used until 42,300, of which 3 were copied: the ticks are not the same.
            (42_400, 3, false),
            (42_450, 1, true),
        ]
    );
    assert_eq!((recording.processes.len(), recording.threads.len()), (1, 1));
    // What the thread says of itself, and what was before that.
    assert_eq!(recording.threads[0].totals.weight, 12);
}

/// One that was held while the library came has its account from then on, and its first sample when
/// it was in user mode for long enough.
#[test]
fn what_was_copied_before_a_threads_first_sample_may_be_in_that() {
    let copied = [(42_010, 3, true), (42_050, 2, true), (42_150, 2, true)];
    let own = own(42, &[(42_100, 7), (42_200, 3)]);
    let (recording, samples) = found(&[copies(42, &copied), own]);
    let weights = samples
        .iter()
        .map(|(time_ns, weight, _)| (*time_ns, *weight));
    let expected = [
        (42_010, 3),
        (42_050, 2),
        (42_100, 2),
        (42_150, 2),
        (42_200, 1),
    ];
    assert_eq!(weights.collect::<Vec<_>>(), expected);
    assert_eq!(recording.threads[0].late_cpu_ns, 0);
}

#[test]
fn a_thread_that_says_nothing_itself_stands_for_itself() {
    let copied = [(42_010, 3, false), (42_150, 2, true)];
    let (recording, samples) = found(&[copies(44, &copied), own(42, &[(42_100, 1)])]);
    assert_eq!(
        samples,
        [(42_010, 3, false), (42_100, 1, false), (42_150, 2, true)]
    );
    assert_eq!((recording.processes.len(), recording.threads.len()), (1, 2));
    let quiet = recording.threads.iter().find(|thread| thread.tid == 44);
    assert_eq!(quiet.unwrap().totals.weight, 5);
}
