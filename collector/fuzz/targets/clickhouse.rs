//! Reads arbitrary bytes as answers of ClickHouse, and as rows that wait to be sent there,
//! compressed and not. Nothing may panic, and rows that were read are the same when they were
//! encoded again.
#![no_main]
#[expect(dead_code, reason = "what was read is looked at elsewhere")]
#[path = "../../src/clickhouse/answer.rs"]
mod answer;
#[path = "../../src/gzip.rs"]
mod gzip;
#[expect(dead_code, reason = "rows are made elsewhere")]
#[path = "../../src/clickhouse/message.rs"]
mod message;
#[expect(dead_code, reason = "rows of samples are made elsewhere")]
#[path = "../../src/clickhouse/native.rs"]
mod native;

use libfuzzer_sys::fuzz_target;
use prost::Message as _;

fuzz_target!(|bytes: &[u8]| {
    let _ = answer::rows::<answer::Sums>(bytes);
    let _ = answer::rows::<answer::Thread>(bytes);
    let _ = answer::rows::<answer::Frame>(bytes);
    let _ = answer::stacks(bytes);
    let _ = answer::rows::<String>(bytes);
    let _ = message::unpack(bytes);
    let Ok(rows) = message::rows(bytes) else {
        return;
    };
    assert!(message::unpack(&rows.encode_to_vec()).unwrap() == rows);
    let frames = rows.frames_that("shop", |hash| hash > 0);
    assert!(frames.is_some() == rows.frames.hash.iter().any(|hash| *hash > 0));
    let stacks = rows.stacks_that("shop", |_| true);
    assert!(stacks.is_some() != rows.stacks.hash.is_empty());
});
