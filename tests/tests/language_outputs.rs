//! Frames of a language in each output: whose they are, by its name or its colour, with function,
//! file and line; and that frames are missing below them, where that is so.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::{DeflateDecoder, GzDecoder};
use rsunwind_tests::command::{Bench, rsunwind, succeed, text};
use rsunwind_tests::nodes;
use rsunwind_tests::pythons::{DEBIANS, python, script};
use rsunwind_tests::repository;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

const FUNCTION: &str = "spin";
const GAP: &str = "[frames missing]";

/// Where the function that uses the time is.
struct Place {
    language: &'static str,
    file: &'static str,
    begins: u64,
    ends: u64,
}

const IN_PYTHON: Place = Place {
    language: "python",
    file: "work.py",
    begins: 10,
    ends: 13,
};
const IN_JAVASCRIPT: Place = Place {
    language: "javascript",
    file: "work.js",
    begins: 8,
    ends: 18,
};

fn record(program: &Path, options: &[&str], file: &Path, argument: &str) -> Bench {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "2000"]);
    command.arg(program).args(options).arg(file).arg(argument);
    succeed(command.env("PYTHON_JIT", "1"));
    bench
}

fn report(bench: &Bench, options: &[&str]) -> String {
    let mut command = Command::new(rsunwind());
    command
        .current_dir(bench.path(""))
        .args(["report", "profile.rsu"]);
    succeed(command.args(options))
}

fn unpacked(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("it is packed so");
    bytes
}

/// What a page shows, but for its columns of numbers.
fn of_page(page: &str) -> Vec<u8> {
    let (_, rest) = page.split_once(r#"type="text/plain">"#).expect("data");
    let (packed, _) = rest.split_once("</script>").expect("an end");
    let packed = BASE64_STANDARD.decode(packed).expect("base64");
    let bytes = unpacked(DeflateDecoder::new(&packed[..]));
    let (length, rest) = bytes.split_first_chunk().expect("a length");
    rest[..u32::from_le_bytes(*length) as usize].to_vec()
}

/// What a format says, as text: by its own reader where it has one.
fn exported(bench: &Bench, ending: &str) -> String {
    let file = bench.path(&format!("out{ending}"));
    let mut command = Command::new(rsunwind());
    command.args(["export", "-o"]).arg(&file);
    succeed(command.arg(bench.path("profile.rsu")));
    let bytes = fs::read(&file).expect("it is written");
    match ending {
        ".json.gz" => text(&unpacked(GzDecoder::new(&bytes[..]))),
        ".html" => text(&of_page(&text(&bytes))),
        ".pb.gz" => succeed(
            Command::new("go")
                .args(["tool", "pprof", "-raw"])
                .arg(&file),
        ),
        ".data" => succeed(
            Command::new("perf")
                .args(["script", "--no-inline", "-i"])
                .arg(&file),
        ),
        _ => text(&bytes),
    }
}

/// The colours in which a picture has the frames of that name, and that of its legend.
fn colours(picture: &str, name: &str, language: &str) -> (Vec<[u8; 3]>, [u8; 3]) {
    let title = format!("<title>{name} (");
    let frames = picture.split(&title).skip(1).map(|frame| {
        let (_, colour) = frame.split_once(r#"fill="rgb("#).expect("a colour");
        let (colour, _) = colour.split_once(')').expect("its end");
        let mut parts = colour
            .split(',')
            .map(|part| part.parse().expect("a number"));
        [(); 3].map(|()| parts.next().expect("three"))
    });
    let (legend, _) = picture
        .split_once(&format!(">{language}</text>"))
        .expect("it is in the legend");
    let (_, colour) = legend.rsplit_once(r##"fill="#"##).expect("a colour");
    let part = |at| u8::from_str_radix(&colour[at..at + 2], 16).expect("a number");
    (frames.collect(), [0, 2, 4].map(part))
}

/// Neighbours are a little lighter or darker.
fn is_like(a: &[u8; 3], b: &[u8; 3]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= 9)
}

fn assert_picture(picture: &str, place: &Place) {
    let (own, legend) = colours(picture, FUNCTION, place.language);
    let (native, _) = colours(picture, "_start", place.language);
    assert!(!own.is_empty() && !native.is_empty());
    assert!(
        own.iter().all(|one| is_like(one, &legend)),
        "{own:?} for {legend:?}"
    );
    assert!(
        !native.iter().any(|one| is_like(one, &legend)),
        "{native:?}"
    );
}

fn assert_pprof(raw: &str, place: &Place) {
    // ` 12: 0x78 spin /path/work.py:12 s=10`
    let of_function = |line: &&str| line.split_whitespace().nth(2) == Some(FUNCTION);
    let lines: Vec<&str> = raw.lines().filter(of_function).collect();
    let is_right = |line: &&str| {
        let (start, rest) = line.rsplit_once(" s=").expect("a first line");
        let (path, line) = start.rsplit_once(':').expect("a line");
        let within = place.begins..=place.ends;
        let line: u64 = line.parse().expect("a number");
        path.ends_with(place.file)
            && rest.parse() == Ok(place.begins)
            && (within.contains(&line) || line == 0)
    };
    assert!(lines.iter().all(is_right) && !lines.is_empty(), "{lines:?}");
}

fn assert_firefox(profile: &Value, place: &Place) {
    let categories = &profile["meta"]["categories"];
    let mut count = 0;
    for thread in profile["threads"].as_array().expect("threads") {
        let (functions, frames) = (&thread["funcTable"], &thread["frameTable"]);
        let string = |at: &Value| &thread["stringArray"][number(at)];
        for (frame, function) in frames["func"].as_array().into_iter().flatten().enumerate() {
            let function = number(function);
            if string(&functions["name"][function]) != FUNCTION {
                continue;
            }
            count += 1;
            let category = &categories[number(&frames["category"][frame])];
            assert_eq!(category["name"], place.language);
            let file = string(&functions["fileName"][function]).as_str();
            assert!(
                file.is_some_and(|file| file.ends_with(place.file)),
                "{file:?}"
            );
            assert_eq!(functions["lineNumber"][function], place.begins);
            let line = frames["line"][frame].as_u64();
            let is_within = |line| (place.begins..=place.ends).contains(&line);
            assert!(line.is_none_or(is_within), "{line:?}");
        }
    }
    assert!(count > 0, "{FUNCTION} is nowhere");
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("a number")).expect("a small one")
}

/// `rsunwind view` shows that page.
fn assert_page(head: &Value, place: &Place) {
    let functions = &head["functions"];
    let texts = |column: &str, at: usize| &functions["texts"][number(&functions[column][at])];
    let names = functions["name"].as_array().expect("names");
    let origin = format!("{}:{}", place.file, place.begins);
    let mut all = 0..names.len();
    let found = all.find(|at| texts("name", *at) == FUNCTION && texts("image", *at) == &*origin);
    let kind = number(&functions["kind"][found.expect("it is there, with its first line")]);
    let languages = head["languages"].as_array().expect("languages");
    let native = (0..names.len()).find(|at| texts("name", *at) == "_start");
    let natives = number(&functions["kind"][native.expect("it is there")]);
    assert_eq!(languages.len(), 1);
    assert_eq!(languages[0], place.language);
    assert!(kind > natives, "kinds of languages are behind the others");
}

fn assert_outputs(bench: &Bench, place: &Place) {
    let only = report(bench, &["--language", place.language]);
    let origin = format!("{}:{}", place.file, place.begins);
    let is_row = |line: &str| line.contains(&origin) && line.ends_with(FUNCTION);
    assert!(only.lines().any(is_row), "{only}");
    let tree = report(bench, &["--language", place.language, "--tree"]);
    assert!(
        tree.contains(FUNCTION) && !tree.contains("_start"),
        "{tree}"
    );

    let folded = exported(bench, ".folded");
    let is_mixed = |line: &str| line.contains("_start;") && line.contains(";spin");
    assert!(folded.lines().any(is_mixed), "{folded}");
    assert_picture(&exported(bench, ".svg"), place);
    assert_pprof(&exported(bench, ".pb.gz"), place);
    let read = |ending| serde_json::from_str(&exported(bench, ending)).expect("JSON");
    assert_firefox(&read(".json.gz"), place);
    assert_page(&read(".html"), place);
    let speedscope: Value = read(".speedscope.json");
    let frames = speedscope["shared"]["frames"].as_array().expect("frames");
    let own = frames.iter().find(|frame| frame["name"] == FUNCTION);
    let own = own.expect("it is there");
    assert_eq!(
        (&own["file"], &own["line"]),
        (&place.file.into(), &place.begins.into())
    );
    let script = exported(bench, ".perf");
    let frame = format!(" {FUNCTION} ({})", place.language);
    assert!(script.contains(&frame), "{script}");
    let script = exported(bench, ".data");
    assert!(script.contains(" spin+0x1 ("), "{script}");
}

#[test]
fn pythons_functions_are_shown_as_such_in_each_output() {
    let bench = record(Path::new(DEBIANS), &["-S"], &script("work.py"), "0.04");
    assert_outputs(&bench, &IN_PYTHON);
}

#[test]
fn javascripts_functions_are_shown_as_such_in_each_output() {
    let Some((_, node)) = nodes::all().pop() else {
        return;
    };
    let script = repository().join("tests/victims/js/work.js");
    let bench = record(&node, &[], &script, "10");
    assert_outputs(&bench, &IN_JAVASCRIPT);
}

/// Code of Python's JIT has no unwind tables: functions above it are there, behind a gap.
#[test]
fn frames_that_are_missing_under_a_jit_are_shown_as_missing_in_each_output() {
    let Some(python) = python(14) else { return };
    let bench = record(&python, &["-S"], &script("work.py"), "0.04");
    let folded = exported(&bench, ".folded");
    let behind = format!(";{FUNCTION};{GAP};");
    assert!(folded.contains(&behind), "{folded}");
    for ending in [".svg", ".pb.gz", ".json.gz", ".html", ".data"] {
        let content = exported(&bench, ending);
        assert!(content.contains(FUNCTION), "{ending}");
        assert!(content.contains(GAP), "{ending}");
    }
    assert!(report(&bench, &["--tree"]).contains(GAP));
}
