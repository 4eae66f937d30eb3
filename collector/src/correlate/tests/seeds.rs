//! What the fuzzer of recordings begins with.

use super::joined::one_call;
use super::labelled::labelled;
use super::languages::{interpreted, more_lines};
use super::*;
use crate::recording::example::{Chunk, absences, head, packed, recording, segment};
use crate::recording::unpacked;
use engine::wire::module::ModuleGone;
use engine::wire::session::{PerfMap, Session};

#[test]
fn the_seeds_of_the_fuzzer_are_recordings_of_today() {
    let mut session = Chunk::new(0, 0, 0);
    session = session.record(RecordKind::Session, |out| Session::default().encode(out));
    let lines = PerfMap {
        lines: b"10 10 a\n",
    };
    let map = Chunk::new(42, 0, 0).record(RecordKind::PerfMap, |out| lines.encode(out));
    let mut deep = head(60, 1);
    deep.elided = 70;
    deep.elided_at = 1;
    let deep = Chunk::new(42, 44, 7).sample(deep, &[0x11, 0x20, 0x30]);
    let mut chunks = three_chunks();
    chunks.extend([session, map, deep]);
    let gone = ModuleGone {
        time_ns: 9,
        start: 0x1000,
    };
    let events = Chunk::new(42, 42, 8).record(RecordKind::ModuleGone, |out| gone.encode(out));
    chunks.push(process(events, 41, b"x\0"));
    chunks.push(one_call());
    chunks.push(interpreted());
    chunks.push(more_lines());
    chunks.push(labelled());
    chunks.push(own_name(Chunk::new(42, 43, 9), 6, b"worker-1 (serve)"));
    let mut cut = recording(&chunks);
    cut.truncate(cut.len() - 100);
    let mut switches = three_chunks();
    for (run, key, number) in [
        (41_900, 41_950, 0),
        (41_900, 41_990, 1),
        (90_000, 90_000, 2),
    ] {
        let seen = absences(
            (42, run),
            (42, key),
            number,
            &[(run + 200, 70), (run + 900, 8)],
        );
        switches.push(thread(process(seen, 0, b"x\0"), run, b"seen"));
    }
    let seeds = [
        ("recording", recording(&chunks)),
        ("segment", segment(&three_chunks()[1..2])),
        ("cut", cut),
        ("switches", recording(&switches)),
        ("header", recording(&[])),
    ];
    for (name, bytes) in seeds {
        crate::seeds::check("recording", name, &bytes);
    }
    // Other versions of zlib, and other processors, may pack otherwise.
    let plain = recording(&chunks);
    let path = crate::seeds::place("recording", "packed", &packed(&plain));
    assert!(std::fs::metadata(&path).unwrap().len() < plain.len() as u64);
    assert!(unpacked(&path).unwrap() == plain, "it is out of date");
}
