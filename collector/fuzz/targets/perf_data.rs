//! Reads arbitrary bytes as a perf.data file. Nothing may panic, hang or use memory out of
//! proportion, and an error is inside the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_data::{PerfFile, What};

fuzz_target!(|bytes: &[u8]| {
    match PerfFile::parse(bytes) {
        Ok(file) => check(&file, bytes.len()),
        Err(error) => assert!(error.offset <= bytes.len() as u64, "{error}"),
    }
});

fn check(file: &PerfFile, length: usize) {
    let _ = file.clock();
    // A record takes at least its header.
    assert!(file.records.len() <= length / 8);
    let mut words = 0;
    for record in &file.records {
        assert!(record.offset < length as u64);
        words += match &record.what {
            What::Sample { event, fields, .. } => {
                let event = &file.events[*event];
                let _ = (event.is_dated(), event.period_ns(), event.counts_time());
                fields.chain.len()
            }
            What::Deferred { stack, .. } => stack.len(),
            What::Map { path, build_id, .. } => path.len() / 24 + build_id.len() / 8,
            _ => 0,
        };
    }
    assert!(words <= length / 8 + file.records.len());
}
