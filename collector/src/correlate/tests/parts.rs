//! Processes are read by several threads at once: it is as if one had read them.

use super::*;
use crate::recording::example::{Chunk, absences, recording};

/// Three processes, with user stacks, halves of the kernel's alone that are the same in two of
/// them, and a damaged record in one.
fn three_processes() -> Vec<u8> {
    let alone = |pid| {
        absences(
            (pid, u64::from(pid) * 1000),
            (pid, 0),
            0,
            &[(5, 7), (20, 3)],
        )
    };
    let own = |pid, name: &[u8]| {
        let chunk = process(Chunk::new(pid, pid, 0), 0, name);
        let chunk = module(chunk, 1, 0x1000, b"/bin/a");
        let chunk = thread(chunk, 1, name);
        let chunk = chunk.sample(head(10, 1), &[0x1100, 0x1200, 0x1300]);
        chunk.sample(head(20, u64::from(pid)), &[0x1110, 0x1200, 0x1300])
    };
    let mut damaged = own(44, b"c");
    let last = damaged.bytes.len() - 1;
    damaged.bytes[last] ^= 1;
    let mut late = own(43, b"b");
    late = late.record(RecordKind::Kernel, |out| {
        let head = engine::wire::kernel::KernelHead {
            cursor: 90,
            time_ns: 90,
            ..Default::default()
        };
        engine::wire::kernel::encode(out, None, &head, &[0xffff_ffff_8100_0030]);
    });
    let thread_of_late = Chunk::new(43, 46, 3).sample(head(50, 9), &[0x1100, 0x1300]);
    recording(&[
        own(42, b"a"),
        alone(42),
        late,
        thread_of_late,
        damaged,
        alone(43),
    ])
}

#[test]
fn parts_of_a_recording_make_what_the_whole_makes() {
    let read = |most| {
        let contents = Contents::of_bytes("x.rsu", three_processes()).unwrap();
        correlate_in(contents, Window::WHOLE, &mut Sent::default(), most).unwrap()
    };
    let whole = read(1);
    assert_eq!((whole.processes.len(), whole.damage_count()), (3, 1));
    assert!(whole.samples.len() > 8, "{:?}", samples(&whole));
    let late = |found: &Recording| -> Vec<u64> {
        found
            .threads
            .iter()
            .map(|thread| thread.late_cpu_ns)
            .collect()
    };
    assert!(late(&whole).iter().any(|ns| *ns > 0));
    for most in 2..5 {
        let found = read(most);
        assert_eq!(samples(&found), samples(&whole), "{most} parts");
        let lists = |found: &Recording| (found.frames.len(), found.stacks.len());
        assert_eq!(lists(&found), lists(&whole));
        assert_eq!(late(&found), late(&whole));
        assert_eq!(found.damage_count(), 1);
        let rest = |sample: &RawSample| RawSample {
            stack: None,
            ..*sample
        };
        let rest = |found: &Recording| found.samples.iter().map(rest).collect::<Vec<_>>();
        assert_eq!(rest(&found), rest(&whole));
    }
}
