//! Reads arbitrary bytes as a recording, and again with the checks of its records made right, so
//! that what is behind them is reached too. Nothing may panic, hang or use memory out of
//! proportion, and what comes out must hold together.
#![no_main]
// Only the reader is compiled, not the whole collector with its symbolizers.
#[allow(dead_code, unused_imports, unfulfilled_lint_expectations)]
#[path = "../../src/correlate/mod.rs"]
mod correlate;
#[allow(dead_code, unused_imports, unfulfilled_lint_expectations)]
#[path = "../../src/intern.rs"]
mod intern;
#[allow(dead_code)]
#[path = "../../src/progress.rs"]
mod progress;
#[allow(dead_code, unused_imports, unfulfilled_lint_expectations)]
#[path = "../../src/recording/mod.rs"]
mod recording;
#[allow(dead_code, unused_imports, unfulfilled_lint_expectations)]
#[path = "../../src/visible.rs"]
mod visible;
/// Our library: what is made up is not it.
mod preload_library {
    pub(crate) fn is_in_rest_of_call(_build_id: &[u8], _address: u64) -> bool {
        false
    }
}

use engine::wire::WireError;
use engine::wire::chunk::{self, ChunkInfo};
use engine::wire::record;
use libfuzzer_sys::fuzz_target;
use recording::Recording;

fuzz_target!(|bytes: &[u8]| {
    read(bytes.to_vec());
    read(with_right_checks(bytes.to_vec()));
});

fn read(bytes: Vec<u8>) {
    let length = bytes.len();
    if let Ok(found) = correlate::read_bytes("fuzz.rsu", bytes) {
        check(&found, length);
    }
}

fn check(found: &Recording, length: usize) {
    // A packed file has as many as it unpacks to.
    let length = found
        .files
        .iter()
        .map(|file| file.length as usize)
        .fold(length, usize::max);
    // Every frame and every sample takes bytes; a gap or a lost root adds a frame of its own.
    assert!(found.samples.len() <= length);
    assert!(found.stacks.len() <= 3 * length.max(1) + 64 * 1024);
    for (index, node) in found.stacks.iter().enumerate() {
        assert!(node.parent.is_none_or(|parent| parent.index() < index));
        assert!(node.frame.index() < found.frames.len());
    }
    for sample in &found.samples {
        assert!(sample.thread.index() < found.threads.len());
        assert!(sample.labels.index() < found.labels.iter().count());
        assert!(
            sample
                .stack
                .is_none_or(|stack| stack.index() < found.stacks.len())
        );
    }
    for thread in &found.threads {
        assert!(thread.process.index() < found.processes.len());
    }
    for (index, process) in found.processes.iter().enumerate() {
        let mut at = process.parent;
        for _ in 0..found.processes.len() {
            at = at.and_then(|parent| found.processes[parent.index()].parent);
        }
        assert!(at.is_none(), "process {index} is its own ancestor");
    }
    for file in &found.files {
        assert!(
            file.damages
                .listed
                .iter()
                .all(|damage| damage.offset <= length as u64)
        );
    }
}

fn with_right_checks(mut bytes: Vec<u8>) -> Vec<u8> {
    let magic = chunk::MAGIC.to_le_bytes();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(4).position(|word| word == magic) {
        let start = at + found;
        at = start + 4;
        let Ok(info) = ChunkInfo::parse(&bytes[start..]) else {
            continue;
        };
        let first = start + chunk::HEADER_SIZE;
        let end = (first + info.committed as usize).min(bytes.len());
        let mut next = first.min(end);
        while next < end {
            let length = match record::parse(&bytes[next..end]) {
                Ok(record) => record.length,
                Err(WireError::BadCheck { computed, .. }) => {
                    bytes[next + 4..next + 8].copy_from_slice(&computed.to_le_bytes());
                    8 * usize::from(u16::from_le_bytes([bytes[next], bytes[next + 1]]))
                }
                Err(_) => break,
            };
            next += length.max(8);
        }
        at = at.max(next);
    }
    bytes
}
