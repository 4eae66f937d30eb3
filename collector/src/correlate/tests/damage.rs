//! Damaged recordings: what is intact is recovered, what is not is named, nothing is invented, and
//! no search is endless.

use super::*;
use crate::recording::example::{self, Chunk, head, recording};
use engine::wire::chunk::HEADER_SIZE as CHUNK_HEADER;
use std::collections::HashSet;

/// Every kind of place in a file, by offset, with what must survive damage there.
#[test]
fn behind_a_flipped_byte_everything_else_is_recovered() {
    let whole = recording(&three_chunks());
    let all = all_samples();
    let mut recovered_all = 0;
    for at in FILE_HEADER..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        let found = read_bytes("flipped.rsu", bytes).unwrap();
        let kept = samples(&found);
        let weight: u64 = kept.iter().map(|s| s.2).sum();
        assert!(weight <= 8, "byte {at:#x}: weight came out of nothing");
        assert!(
            kept.len() >= 3,
            "byte {at:#x}: more was lost than a chunk: {kept:?}"
        );
        for (tid, _, weight, pcs) in &kept {
            let known = |s: &(u32, u64, u64, Vec<u64>)| s.2 == *weight && s.3.starts_with(pcs);
            let inner = || pcs.strip_suffix(&[0]).is_some();
            let real = all.iter().any(known) || inner();
            assert!(real, "byte {at:#x}: an invented sample of {tid}: {pcs:x?}");
        }
        if sorted(kept) == all {
            recovered_all += 1;
        } else {
            let silent = found.damage_count() == 0 && found.processes.len() == 1;
            let header_field = chunk_header_field(&whole, at);
            assert!(
                !silent || header_field,
                "byte {at:#x}: a loss without a word"
            );
        }
    }
    assert!(recovered_all > 0);
}

#[test]
fn damage_in_a_packed_recording_is_named_and_costs_its_block_at_most() {
    // More than fits into a block.
    let chunk = |at: u32| {
        let chunk = Chunk::new(at, at, 0);
        let sample = |chunk: Chunk, time: u64| {
            let scattered = u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ time;
            chunk.sample(head(scattered.rotate_left(17), 1), &[scattered, 0x20])
        };
        (0..800u64).fold(chunk, |chunk, time| {
            sample(chunk, time.wrapping_mul(0xd6e8_feb8_6659_fd93))
        })
    };
    let chunks: Vec<_> = (1..=20).map(chunk).collect();
    let whole = recording(&chunks);
    let packed = example::packed(&whole);
    assert!(packed.len() < whole.len());
    let all = samples(&read_bytes("whole.rsu", whole).unwrap());
    let found = read_bytes("packed.rsu", packed.clone()).unwrap();
    assert_eq!(found.damage_count(), 0);
    assert!(samples(&found) == all);
    let leaves: HashSet<_> = all.iter().map(|(tid, _, _, pcs)| (*tid, pcs[0])).collect();

    let damaged: [fn(&mut Vec<u8>, usize); 3] = [
        |bytes, at| bytes[at] ^= 0x15,
        |bytes, at| bytes.truncate(at),
        |bytes, at| bytes.insert(at, 0xa5),
    ];
    for (way, damage) in damaged.iter().enumerate() {
        for at in (16..packed.len()).step_by(49_999) {
            let mut bytes = packed.clone();
            damage(&mut bytes, at);
            let Ok(found) = read_bytes("damaged.rsu", bytes) else {
                assert!(way == 1 && at < 4096, "{way} at {at}");
                continue;
            };
            let kept = samples(&found);
            // Behind a record that is lost, when it was and the root may be, too.
            let real = |sample: &&(u32, u64, u64, Vec<u64>)| {
                let (tid, _, weight, pcs) = sample;
                let [leaf, root] = pcs[..] else { return false };
                *weight == 1 && [0, 0x20].contains(&root) && leaves.contains(&(*tid, leaf))
            };
            let invented = kept.iter().find(|sample| !real(sample));
            assert_eq!(invented, None, "{way} at {at}");
            assert!(
                way == 1 || kept.len() * 3 > all.len(),
                "{way} at {at}: {}",
                kept.len()
            );
            let harmless = (16..64).contains(&at); // words of the header that say nothing here
            assert!(
                harmless || found.damage_count() > 0,
                "{way} at {at}: without a word"
            );
        }
    }
}

fn chunk_header_field(whole: &[u8], at: usize) -> bool {
    let magic = engine::wire::chunk::MAGIC.to_le_bytes();
    let starts = (0..whole.len()).filter(|start| whole[*start..].starts_with(&magic));
    starts
        .into_iter()
        .any(|start| (start..start + CHUNK_HEADER).contains(&at))
}

#[test]
fn a_damaged_sample_costs_itself_and_the_root_of_those_that_lean_on_it() {
    let chunk = Chunk::new(1, 1, 0)
        .sample(head(10, 1), &[0x10, 0x20, 0x30])
        .sample(head(20, 1), &[0x11, 0x20, 0x30])
        .sample(head(30, 1), &[0x12, 0x21, 0x30])
        .sample(head(40, 1), &[0x13, 0x14]);
    let mut bytes = recording(&[chunk]);
    let first = FILE_HEADER + CHUNK_HEADER;
    let length = 8 * usize::from(bytes[first]);
    bytes[first + length + 10] ^= 1; // in the second sample
    let found = read_bytes("x.rsu", bytes).unwrap();
    let stacks: Vec<_> = samples(&found).into_iter().map(|s| s.3).collect();
    assert_eq!(
        stacks,
        [
            vec![0x10, 0x20, 0x30],
            vec![0x12, 0x21, 0],
            vec![0x13, 0x14]
        ]
    );
    let damage = &found.files[0].damages.listed[0];
    assert_eq!(damage.offset, (first + length) as u64);
    assert!(damage.what.contains("its check"), "{damage}");
}

#[test]
fn a_cut_file_keeps_what_is_whole() {
    let whole = recording(&three_chunks());
    let mut most = 0;
    for length in FILE_HEADER..whole.len() {
        let found = read_bytes("cut.rsu", whole[..length].to_vec()).unwrap();
        let kept = samples(&found);
        assert!(kept.len() >= most, "a longer file gave less at {length}");
        let told = &found.files[0].damages.listed;
        let missing = whole.len() - length;
        let last = told.last().map(ToString::to_string).unwrap_or_default();
        assert!(last.contains(&format!("last {missing} bytes")), "{told:?}");
        most = kept.len();
        assert!(kept.iter().all(|kept| all_samples().contains(kept)));
    }
    assert_eq!(most, 5);
}

#[test]
fn inserted_and_missing_bytes_cost_one_chunk_at_most() {
    let whole = recording(&three_chunks());
    for at in (FILE_HEADER..whole.len()).step_by(8) {
        for insert in [1, 7, 8, 64, 1000] {
            let mut bytes = whole[..at].to_vec();
            bytes.resize(at + insert, 0xa5);
            bytes.extend_from_slice(&whole[at..]);
            let found = read_bytes("inserted.rsu", bytes).unwrap();
            let weight: u64 = samples(&found).iter().map(|s| s.2).sum();
            assert!(weight >= 4, "{insert} bytes at {at:#x}: weight {weight}");
            assert!(weight <= 8);
            assert!(found.damage_count() > 0, "{insert} bytes at {at:#x}");
        }
        let mut bytes = whole[..at].to_vec();
        bytes.extend_from_slice(&whole[(at + 8).min(whole.len())..]);
        let found = read_bytes("missing.rsu", bytes).unwrap();
        let weight: u64 = samples(&found).iter().map(|s| s.2).sum();
        assert!(
            (4..=8).contains(&weight),
            "8 bytes missing at {at:#x}: {weight}"
        );
    }
}

#[test]
fn a_damaged_file_header_does_not_hide_the_chunks() {
    let mut bytes = recording(&three_chunks());
    bytes[2] = b'x';
    let found = read_bytes("x.rsu", bytes).unwrap();
    assert_eq!(sorted(samples(&found)), all_samples());
    assert!(
        found.files[0].damages.listed[0]
            .what
            .contains("file header")
    );
}

#[test]
fn reused_frames_beyond_the_stack_before_are_damage() {
    let payload = |out: &mut engine::wire::codec::Encoder<'_>| {
        for byte in [2, 2, 1, 1, 0, 0, 0, 9, 0, 0] {
            out.byte(byte);
        }
    };
    let chunk = Chunk::new(1, 1, 0).record(RecordKind::Sample, payload);
    let found = read_bytes("x.rsu", recording(&[chunk])).unwrap();
    assert!(found.samples.is_empty());
    let what = &found.files[0].damages.listed[0].what;
    assert!(what.contains("reused frames"), "{what}");
}

/// 20,000 chunks that each claim a megabyte, of which the next chunks are part, and begin with a
/// record that claims half of one: read naively that is 30 GB. (There is no limit of time here; a
/// test runner's own would strike.)
#[test]
fn chunks_that_reach_into_each_other_are_read_once() {
    let mut bytes = example::header().to_bytes().to_vec();
    for number in 0..20_000 {
        let info = engine::wire::chunk::ChunkInfo {
            state: 2,
            stride: 1 << 20,
            committed: (1 << 20) - 128,
            pid: number,
            tid: number + 1,
            ..Default::default()
        };
        bytes.extend_from_slice(&info.to_bytes());
        bytes.extend_from_slice(&[0xff, 0xff, 7, 0, 1, 2, 3, 4]);
        bytes.extend_from_slice(&[0; 56]);
    }
    let found = read_bytes("x.rsu", bytes).unwrap();
    assert_eq!(found.threads.len(), 20_000);
    assert!(found.samples.is_empty());
}

/// Sound records of one word between damaged ones that claim half a megabyte: all sound ones are
/// found, or the rest is given up.
#[test]
fn the_search_behind_damage_is_bounded() {
    let mut chunk = Chunk::new(1, 1, 0);
    let mut sound = [0; 8];
    engine::wire::record::seal(&mut sound, RecordKind::Event, 0).unwrap();
    for _ in 0..50_000 {
        chunk
            .bytes
            .extend_from_slice(&[0xff, 0xff, 7, 0, 1, 2, 3, 4]);
        chunk.bytes.extend_from_slice(&sound);
    }
    chunk.info.committed = u32::try_from(chunk.bytes.len()).unwrap();
    let found = read_bytes("x.rsu", recording(&[chunk])).unwrap();
    assert!(found.damage_count() > 100);
}
