//! Tests of [`super`]: what a drain finds, and when.

use super::*;
use engine::wire::file::{FileInfo, FileKind};

/// Puts a segment without chunks into a session, of a program run with that key.
fn put(session: &Path, process_key: u64) {
    let info = FileInfo {
        kind: FileKind::Segment,
        machine: 62,
        pid: std::process::id(),
        process_key,
        chunkless_samples: 0,
        chunkless_weight: 0,
        unarmed_threads: 0,
        start_ticks: 1,
        length: 0,
    };
    let name = format!("{:x}.{process_key:x}.seg", info.pid);
    fs::write(session.join(name), info.to_bytes()).unwrap();
}

#[test]
fn who_came_after_a_look_was_cut_short_is_found_at_the_end() {
    let session = tempfile::tempdir().unwrap();
    let recording = tempfile::tempfile().unwrap();
    let rings = Rings::listen(session.path());
    let mut drain = Drain::new(session.path(), rings, Writer::new(recording));
    put(session.path(), 1);
    drain.writer.begin().unwrap();
    // The list is longer than this turn: there is the socket, too.
    assert_eq!(drain.discover(Turn::over()), Progress::Begun);
    put(session.path(), 2);
    while drain.finish().unwrap() == Progress::Begun {}
    assert_eq!(drain.runs(), 2);
}
