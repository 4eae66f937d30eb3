//! Reads arbitrary bytes as answers of ClickHouse, and as rows that wait to be sent there,
//! compressed and not. Nothing may panic, and a row that was read is the same when it was packed
//! again.
#![no_main]
#[expect(dead_code, reason = "what was read is looked at elsewhere")]
#[path = "../../src/clickhouse/answer.rs"]
mod answer;
#[path = "../../src/clickhouse/message.rs"]
mod message;
#[expect(dead_code, reason = "tables are made elsewhere")]
#[path = "../../src/clickhouse/table.rs"]
mod table;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let _ = answer::rows::<answer::Sum>(bytes);
    let _ = answer::rows::<answer::Frame>(bytes);
    let _ = answer::rows::<answer::Stack>(bytes);
    let _ = message::lines(bytes);
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().filter(|line| !line.ends_with('\r'));
    let mut packer = message::Packer::new();
    let mut rows = Vec::new();
    for row in lines.filter_map(message::row) {
        let Ok(object) = serde_json::from_str::<Value>(row.json) else {
            continue;
        };
        packer.push(row.table, row.hash, &object).unwrap();
        rows.push((row.table, row.hash, object.to_string()));
    }
    let packed = message::lines(&packer.finish().unwrap()).unwrap();
    let again = packed.lines().filter_map(message::row);
    let again: Vec<_> = again
        .map(|row| (row.table, row.hash, row.json.to_owned()))
        .collect();
    assert!(again == rows);
});
