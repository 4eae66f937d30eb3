//! Samples with labels, and those that others took of such threads.

use super::*;
use crate::recording::example::recording;
use engine::wire::kernel::{self, KernelHead};
use engine::wire::label::LabelSet;
use engine::wire::sample::{SampleHead, flags};

fn described(chunk: Chunk, number: u64, labels: &[u8]) -> Chunk {
    chunk.record(RecordKind::Labels, |out| {
        LabelSet::encode((number, 5), labels.len(), std::iter::once(labels), out);
    })
}

fn at(time_ns: u64, labels: u64, changes: u64) -> SampleHead {
    SampleHead {
        labels,
        changes,
        ..head(time_ns, 1)
    }
}

/// A thread in two regions, with a sample of the kernel's alone in each, and its last one.
pub(super) fn labelled() -> Chunk {
    let mut chunk = described(
        Chunk::new(7, 7, 0),
        3,
        b"\x05route\x02/a\x05route\x02/b\x01k\x01v",
    );
    chunk = chunk.sample(at(1000, 0, 0), &[0x10]);
    chunk = chunk.sample(at(2000, 3, 1), &[0x10]);
    chunk = chunk.sample(at(3000, 3, 1), &[0x10]);
    chunk = chunk.sample(at(4000, 9, 2), &[0x10]);
    chunk = chunk.sample(at(5000, 0, 3), &[0x10]);
    let (frames, mut last) = ([0xffff_ffff_8100_0030], None);
    for time_ns in [500, 2500, 3500] {
        let head = KernelHead {
            cursor: 90_000 + time_ns,
            time_ns,
            user_ip: 0x1000,
            user_sp: 0x7000,
            ..KernelHead::default()
        };
        let before = last.replace(head);
        chunk = chunk.record(RecordKind::Kernel, |out| {
            let before = before.as_ref().map(|before| (before, &frames[..]));
            kernel::encode(out, before, &head, &frames);
        });
    }
    let last = SampleHead {
        flags: flags::LAST,
        ..at(6000, 0, 3)
    };
    chunk.sample(last, &[0x10])
}

#[test]
fn samples_have_the_labels_that_their_thread_says_or_implies() {
    let found = read_bytes("x.rsu", recording(&[labelled()])).unwrap();
    let shown = |sample: &RawSample| {
        let labels = found.labels.get(sample.labels).iter();
        let labels = labels.map(|(key, value)| format!("{key}={value}"));
        let labels: Vec<_> = match sample.labels {
            LabelsId::UNKNOWN => vec!["?".to_owned()],
            _ => labels.collect(),
        };
        (sample.time_ns, labels.join(" "))
    };
    let mut shown: Vec<_> = found.samples.iter().map(shown).collect();
    shown.sort();
    let wanted = [
        (500, ""),
        (1000, ""),
        (2000, "k=v route=/b"),
        (2500, "k=v route=/b"),
        (3000, "k=v route=/b"),
        (3500, "?"),
        (4000, "?"), // never described
        (5000, ""),
        (6000, ""),
    ];
    assert_eq!(
        shown,
        wanted.map(|(time, labels)| (time, labels.to_owned()))
    );
}
