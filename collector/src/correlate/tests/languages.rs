//! Frames of interpreters.

use super::*;
use crate::profile::{Function, Mode, Profile, Show};
use crate::recording::RawFrame;
use crate::recording::example::{Chunk, head, recording};
use crate::symbolize::{NOT_DESCRIBED, Places};
use engine::address::RuntimeAddress;
use engine::wire::code::{Code, CodeGone, LineFormat, MoreLines};
use engine::wire::sample::{Frame, Method};

/// A sample with native frames, two of one code object, one of another of that name, and one that
/// nobody described.
pub(super) fn interpreted() -> Chunk {
    let code = |number, file, lines| Code {
        number,
        time_ns: 1,
        language: b"toy",
        name: b"f",
        file,
        first_line: 7,
        format: LineFormat::Steps,
        lines,
        ..Code::default()
    };
    // From position 4 on, two lines further down.
    let (one, other) = (code(5, b"a.toy", &[4, 4]), code(6, b"b.toy", &[]));
    let native = |pc, method| Frame::native(RuntimeAddress(pc), method);
    let language = |number, position| Frame {
        pc: RuntimeAddress(number),
        method: Method::Language,
        position,
    };
    let frames = vec![
        native(0x1010, Method::Registers),
        native(0x1020, Method::EhFrame),
        language(5, 9),
        language(5, 0),
        native(0x1030, Method::EhFrame),
        language(6, 0),
        language(77, 0),
        native(0x1040, Method::Told),
        language(0, 0),
        language(6, 3),
    ];
    // Code of a JIT, at one place and then, when that was taken away, other code.
    let made = |number, time_ns, name| Code {
        time_ns,
        start: 0x9000,
        size: 0x40,
        name,
        ..code(number, b"made.toy", &[4, 4])
    };
    let (first, second) = (made(20, 50, &b"one"[..]), made(21, 60, b"two"));
    let gone = CodeGone {
        time_ns: 58,
        number: 20,
    };
    let chunk = Chunk::new(42, 42, 9);
    let chunk = chunk.record(RecordKind::Code, |out| first.encode(out));
    let chunk = chunk.record(RecordKind::CodeGone, |out| gone.encode(out));
    let chunk = chunk.record(RecordKind::Code, |out| second.encode(out));
    let chunk = chunk.record(RecordKind::Code, |out| one.encode(out));
    let chunk = chunk.record(RecordKind::Code, |out| other.encode(out));
    // Described again, as after the table of numbers has forgotten it.
    let again = Code { number: 8, ..one };
    let chunk = chunk.record(RecordKind::Code, |out| again.encode(out));
    let again = Frame {
        pc: RuntimeAddress(8),
        ..frames[2]
    };
    let mut again_with = frames.clone();
    again_with[2] = again;
    chunk
        .sample_of(head(60, 1), frames)
        .sample_of(head(61, 2), again_with)
        .sample(head(55, 1), &[0x1010, 0x9010])
        .sample(head(65, 1), &[0x1010, 0x9003])
}

fn profile(show: Show) -> Profile {
    let recording = read_whole(recording(&[interpreted()]));
    Profile::with(recording, &Places::default(), show)
}

/// Name, file and line of each frame, from the leaf; native ones by their place.
fn shown(profile: &Profile, sample: usize) -> Vec<String> {
    let frames = profile.walk(profile.samples[sample].stack);
    let word = |frame: &crate::profile::Frame| {
        let function = profile.function(frame);
        match (function.mode, frame.address) {
            (Mode::User, Some(at)) => format!("{:x}", at.lookup().0),
            _ => {
                let file = frame.file.as_deref().unwrap_or("");
                format!("{} {file} {}", function.name, frame.line)
            }
        }
    };
    frames.map(word).collect()
}

/// More of the line table of its first code object, in the wrong order; a part is missing.
pub(super) fn more_lines() -> Chunk {
    let parts = [(6, &[4, 4][..]), (2, &[4, 4]), (900, &[4, 4]), (4, &[4, 4])];
    let chunk = Chunk::new(42, 42, 10);
    parts.into_iter().fold(chunk, |chunk, (offset, lines)| {
        let more = MoreLines {
            number: 5,
            offset,
            lines,
        };
        chunk.record(RecordKind::MoreLines, |out| more.encode(out))
    })
}

#[test]
fn line_tables_are_put_together_from_parts_in_any_order() {
    for chunks in [[more_lines(), interpreted()], [interpreted(), more_lines()]] {
        let found = read_whole(recording(&chunks));
        let code = &found.codes[found.processes[0].codes[&5].index()];
        let lines = [3, 4, 8, 12, 16, 99].map(|position| code.line(position));
        assert_eq!(lines, [7, 9, 11, 13, 15, 15]);
        let other = &found.codes[found.processes[0].codes[&8].index()];
        assert_eq!(other.line(99), 9, "described again, without these parts");
    }
}

#[test]
fn frames_of_a_language_have_names_files_and_lines() {
    let all = profile(Show {
        interpreters: true,
        ..Show::default()
    });
    let undescribed = format!("{NOT_DESCRIBED}  0");
    let expected = [
        "1010",
        "101f",
        "f a.toy 9",
        "f a.toy 7",
        "102f",
        "f b.toy 7",
        &undescribed,
        "103f",
        "[frames missing]  0",
        "f b.toy 7",
    ];
    assert_eq!(shown(&all, 0), expected);
    assert_eq!(shown(&all, 1), expected, "described twice, but one");
    assert_eq!(all.samples[0].stack, all.samples[1].stack);
    assert_eq!(all.recording.codes.len(), 4);
    let is_f = |f: &&Function| matches!(f.mode, Mode::Language(_)) && &*f.name == "f";
    let own = all.functions.iter().filter(is_f);
    assert_eq!(own.count(), 2, "those of one name in two files are two");
}

#[test]
fn the_interpreters_own_frames_are_hidden() {
    let shown = shown(&profile(Show::default()), 0);
    let left_out = ["101f", "102f"];
    assert!(
        shown.iter().all(|frame| !left_out.contains(&&**frame)),
        "{shown:?}"
    );
    assert_eq!(shown.len(), 8, "{shown:?}");
}

#[test]
fn code_of_a_jit_is_what_was_there_at_the_time() {
    let profile = profile(Show::default());
    let callers: Vec<String> = (2..4)
        .map(|sample| shown(&profile, sample).remove(1))
        .collect();
    assert_eq!(callers, ["one made.toy 9", "two made.toy 7"]);
}

#[test]
fn a_profile_folds_to_a_language() {
    let mut profile = profile(Show::default());
    assert!(
        profile
            .fold_to("snake")
            .unwrap_err()
            .to_string()
            .contains("there are: toy")
    );
    profile.fold_to("toy").unwrap();
    let expected = ["f a.toy 9", "f a.toy 7", "f b.toy 7", "f b.toy 7"];
    assert_eq!(shown(&profile, 0), expected);
    let total: u64 = profile.samples.iter().map(|sample| sample.weight).sum();
    assert_eq!(total, 5);
}

#[test]
fn a_number_of_another_process_is_not_known() {
    let mut other = interpreted();
    other.info.pid = 43;
    other.info.process_key = 43_000;
    let bare = Chunk::new(44, 44, 1).sample_of(
        head(60, 1),
        vec![Frame {
            pc: RuntimeAddress(5),
            method: Method::Language,
            position: 4,
        }],
    );
    let read = read_whole(recording(&[other, bare]));
    let of_44 = read.samples.iter().map(|sample| read.walk(sample.stack));
    let of_44 = of_44
        .filter_map(|mut frames| frames.next())
        .find(|leaf| !matches!(leaf, RawFrame::Code { .. }));
    let unknown = RawFrame::Language {
        code: None,
        position: 4,
    };
    assert_eq!(of_44, Some(unknown));
}
