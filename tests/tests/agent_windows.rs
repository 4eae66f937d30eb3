//! Windows of a recording that goes on: each sample is in one of them.

use collector::correlate;
use rsunwind_tests::agent::{in_two_parts, works};
use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use rsunwind_tests::repository;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the agent asks for. `books`: what the windows before it had.
fn request(paths: &[&Path], times: [u64; 4], names: &Path, books: &Value) -> String {
    let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let request = json!({
        "paths": paths.iter().map(|one| path(one)).collect::<Vec<_>>(),
        "names": path(names),
        "thorough": false,
        "processes": [],
        "each": false,
        "window": times,
        "forms": ["pprof"],
        "attributes": {},
        "books": books,
    });
    request.to_string()
}

/// Has a window read, as the agent does; gives the sum of its weights. `None` if it cannot be read.
fn window(paths: &[&Path], times: [u64; 4], names: &Path, books: &mut Value) -> Option<u64> {
    let request = request(paths, times, names, books);
    let mut child = Command::new(rsunwind())
        .arg("agent-window")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(request.as_bytes()).unwrap();
    drop(stdin);
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    // Of a recording that has ended meanwhile it says nothing.
    if !child.wait().unwrap().success() || out.is_empty() {
        return None;
    }
    let head = out.split(|byte| *byte == b'\n').next().unwrap();
    let head: Value = serde_json::from_slice(head).unwrap();
    *books = head["books"].clone();
    head["numbers"][1].as_u64()
}

/// What is said if nobody is there any more to take a window.
fn said_to_nobody(paths: &[&Path], times: [u64; 4], names: &Path, books: &Value) -> String {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = Command::new(rsunwind())
        .arg("agent-window")
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let request = request(paths, times, names, books);
    stdin.write_all(request.as_bytes()).unwrap();
    drop(stdin);
    text(&child.wait_with_output().unwrap().stderr)
}

/// Where a recording's session is.
fn session_of(recording: &Path) -> Option<PathBuf> {
    let recording = fs::canonicalize(recording).ok()?;
    let directories = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let places = directories(Path::new("/dev/shm"));
    let mut sessions = places.iter().flat_map(|place| directories(place));
    let is_its = |session: &PathBuf| {
        fs::read_link(session.join("recording.rsu")).is_ok_and(|link| link == recording)
    };
    sessions.find(is_its)
}

fn monotonic_ns() -> u64 {
    let time = nix::time::ClockId::CLOCK_MONOTONIC.now().unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// That is tried with an engine by hand only, which is too large to be fetched here.
#[test]
fn rows_for_clickhouse_are_read_by_what_tries_them_with_an_engine() {
    const STACKS: &str = "import sys; sys.path.insert(0, sys.argv[1]); from engine import Rows\n\
        rows = Rows(*sys.argv[2:], {'service.name': 's', 'host.name': 'h'})\n\
        functions = {one['hash']: one['function'] for one in rows.frames}\n\
        for one in rows.stacks: print(' '.join(functions[frame] for frame in one['frames']))";
    let bench = Bench::new();
    let program = works(&bench);
    let mut recorder = bench.record(&["-q", "-F", "997"]);
    let status = recorder.arg(program).arg("0.3").status().unwrap();
    assert_eq!(status.code(), Some(3), "the program's own");
    let mut reader = Command::new("python3");
    reader.args(["-B", "-c", STACKS]);
    reader.arg(repository().join("tests/clickhouse"));
    reader.arg(rsunwind()).arg(bench.path("profile.rsu"));
    let read = output(reader.current_dir(bench.path(".")));
    assert!(read.status.success(), "{}", text(&read.stderr));
    let stacks = text(&read.stdout);
    let are_there = |names: &str| stacks.lines().any(|stack| stack.starts_with(names));
    assert!(are_there("work_a_while work main "), "{stacks}");
    assert!(are_there("work_a_while work start_thread "), "{stacks}");
}

#[test]
fn windows_of_a_recording_that_goes_on_hold_each_sample_once() {
    let bench = Bench::new();
    let program = works(&bench);
    let mut recorder = bench.record(&["-q", "-F", "997"]);
    let mut line = in_two_parts(&bench, &mut recorder, &program, ["0.7 brief", "0.5"]);
    let mut recorder = recorder.spawn().unwrap();
    let begun = wait_for("a recording", || bench.begun());
    let session = wait_for("a session", || session_of(&begun));
    let names = bench.path("names.rsu");
    let (mut sum, mut windows) = (0, 0);
    let (mut last, mut before) = (0, 0);
    let mut books = json!({
        "late": [], "beside": [], "threads": [], "lives": [], "sent": 0, "owed": [0, 0, 0, 0, 0, 0, 0],
    });
    loop {
        let status = recorder.try_wait().unwrap();
        if status.is_some() {
            break;
        }
        // Nothing is younger than the recording is behind.
        let until = monotonic_ns().saturating_sub(1_500_000_000).max(last);
        let now = window(&[&session], [last, until, before, last], &names, &mut books);
        if !session.join("recording.rsu").exists() {
            // It may have ended meanwhile.
            recorder.wait().unwrap();
            break;
        }
        let now = now.expect("a window of a session that is there");
        windows += u64::from(now > 0);
        if windows == 1 && now > 0 {
            line.write_all(b"\n").unwrap();
        }
        (sum, before, last) = (sum + now, last, until);
    }
    assert!(windows > 0);
    let (path, times) = (
        bench.path("profile.rsu"),
        [last, u64::MAX, before, u64::MAX],
    );
    // The program's standard error is that of the reader, too, and the agent may have been killed.
    assert_eq!(said_to_nobody(&[&path], times, &names, &books), "");
    let rest = window(&[&path], times, &names, &mut books);
    sum += rest.unwrap();
    let whole = bench.recording();
    let weights = whole.samples.iter().map(|sample| sample.weight);
    assert_eq!(sum, weights.sum::<u64>());
    // With what no sample has, all that the kernel charged was sent.
    let charged = whole.session.as_ref().unwrap().charged_ns;
    let sent = books["sent"].as_u64().unwrap();
    assert!(charged > 0 && sent >= charged, "{sent} of {charged} ns");
    // However the cuts lie.
    let times = whole.samples.iter().map(|sample| sample.time_ns);
    let (first, end) = (times.clone().min().unwrap(), times.max().unwrap());
    let (mut sum, mut last, mut before) = (0, 0, 0);
    let mut sent = correlate::Sent::default();
    for part in 1..=8 {
        let until = if part == 8 {
            u64::MAX
        } else {
            first + (end - first) / 8 * part
        };
        let late = if part == 8 { u64::MAX } else { last };
        let window = correlate::Window {
            after_ns: last,
            until_ns: until,
            late_after_ns: before,
            late_until_ns: late,
        };
        let read = correlate::read_window(&[bench.path("profile.rsu")], window, &mut sent);
        let read = read.unwrap();
        sum += read.samples.iter().map(|sample| sample.weight).sum::<u64>();
        (before, last) = (last, until);
    }
    let weights = whole.samples.iter().map(|sample| sample.weight);
    assert_eq!(sum, weights.sum::<u64>());
}
