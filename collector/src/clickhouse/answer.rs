//! What ClickHouse answers to the queries of [`super::read`]: a JSON array on each line.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The samples of a thread whose weights are of the same period.
#[derive(Debug, Deserialize)]
pub(super) struct Sums {
    pub(super) process: String,
    pub(super) thread: String,
    pub(super) period_ns: u64,
    /// When the first and the last sample were, ms since 1970.
    pub(super) first_ms: u64,
    pub(super) last_ms: u64,
    /// The hash of each stack, and the sum of its weights.
    pub(super) stacks: Vec<(u64, u64)>,
}

impl Sums {
    /// What no other has.
    pub(super) fn name(&self) -> (&str, &str, u64) {
        (&self.process, &self.thread, self.period_ns)
    }
}

/// A row of the table of frames.
#[derive(Debug, Deserialize)]
pub(super) struct Frame {
    pub(super) hash: u64,
    pub(super) function: String,
    pub(super) short: String,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) binary: String,
    pub(super) build_id: String,
    pub(super) language: String,
    pub(super) inlined: u32,
}

/// A row of the table of stacks.
#[derive(Debug, Deserialize)]
pub(super) struct Stack {
    pub(super) hash: u64,
    /// Hashes of frames, from the innermost.
    pub(super) frames: Vec<u64>,
}

/// The rows of an answer.
///
/// # Errors
/// Which line is none, and why.
pub(super) fn rows<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>, String> {
    let lines = body.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty());
    let row = |(number, line)| {
        let read = serde_json::from_slice(line);
        read.map_err(|why| format!("line {}: {why}", number + 1))
    };
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rows_and_what_is_none_is_named() {
        let stacks: Vec<Stack> = rows(b"[18446744073709551615,[1,2]]\n[7,[]]\n").unwrap();
        assert_eq!(
            (stacks[0].hash, &*stacks[0].frames),
            (u64::MAX, &[1, 2][..])
        );
        assert!(stacks[1].frames.is_empty() && rows::<Stack>(b"").unwrap().is_empty());
        for damaged in [
            "[1]",
            "[1,[-1]]",
            "[1,[],2]",
            "[1,[2",
            "<html>",
            "\u{0}",
            "[\"1\",[]]",
        ] {
            let why = rows::<Stack>(format!("[7,[]]\n{damaged}\n").as_bytes()).unwrap_err();
            assert!(why.starts_with("line 2: "), "{damaged}: {why}");
        }
        let deep = "[".repeat(1 << 20);
        assert!(rows::<Stack>(deep.as_bytes()).is_err());
    }
}
