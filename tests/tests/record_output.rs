//! What `rsunwind record` writes, in which format, and what happens where it cannot.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsunwind_tests::command::{BUSY, Bench, output, rsunwind, text};
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn an_output_that_cannot_be_written_is_found_before_the_program_runs() {
    let bench = Bench::new();
    let mut command = Command::new(rsunwind());
    let marker = bench.path("ran");
    let result = output(
        command
            .args(["record", "-o", "/nonexistent/x.rsu", "touch"])
            .arg(&marker),
    );
    assert_eq!(result.status.code(), Some(1));
    assert!(
        text(&result.stderr).contains("/nonexistent/x.rsu: cannot be written"),
        "{}",
        text(&result.stderr)
    );
    assert!(!marker.exists());
}

#[test]
fn a_recording_that_cannot_be_kept_is_told_and_the_program_runs_on() {
    let bench = Bench::new();
    let mut command = Command::new(rsunwind());
    let result = output(
        command
            .args(["record", "-o", "/dev/full", "sh", "-c", "echo ran; exit 9"])
            .current_dir(bench.path("")),
    );
    assert_eq!(
        (result.status.code(), text(&result.stdout)),
        (Some(9), "ran\n".into())
    );
    assert!(
        text(&result.stderr).contains("No space left"),
        "{}",
        text(&result.stderr)
    );
    let result = output(Command::new(rsunwind()).args(["record", "-o", "/dev/full", "true"]));
    assert_eq!(
        result.status.code(),
        Some(1),
        "the program succeeded, the recording did not"
    );
}

#[test]
fn the_profile_is_written_in_the_format_of_its_name() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1"], BUSY);
    let directory = bench.path("");
    let record = |arguments: &[&str]| {
        let mut command = Command::new(rsunwind());
        output(
            command
                .current_dir(&directory)
                .arg("record")
                .args(arguments)
                .arg("--")
                .arg(&program),
        )
    };
    for (name, start) in [
        ("out.svg", &b"<?xml"[..]),
        ("out.html", &b"<!doctype html>"[..]),
        ("out.pb.gz", &[0x1f, 0x8b][..]),
        ("out.json.gz", &[0x1f, 0x8b][..]),
        ("out.folded", &b""[..]),
    ] {
        let result = record(&["-o", name]);
        let told = text(&result.stderr);
        assert_eq!(result.status.code(), Some(3), "{told}");
        assert!(
            told.contains(&format!("rsunwind: {name}: ")) && told.contains("samples"),
            "{told}"
        );
        assert!(
            fs::read(bench.path(name)).unwrap().starts_with(start),
            "{name}"
        );
    }
    let lines = fs::read_to_string(bench.path("out.folded")).unwrap();
    assert!(
        lines.lines().any(|line| line.starts_with("_start;")),
        "{lines}"
    );
    let folded = record(&["-q", "-f", "folded", "-o", "-"]);
    assert!(
        text(&folded.stdout).contains(";main "),
        "{}",
        text(&folded.stdout)
    );
    let names = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let leftover: Vec<_> = names
        .filter(|name| name.to_string_lossy().contains(".rsu"))
        .collect();
    assert!(
        leftover.is_empty(),
        "the recordings were for the time being: {leftover:?}"
    );
    for arguments in [&["-o", "out.doc"][..], &["-f", "doc"], &["-o", "-"]] {
        let result = record(arguments);
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
        let told = text(&result.stderr);
        assert!(told.contains(".svg") || told.contains("-o FILE"), "{told}");
    }
}

#[test]
fn a_profile_that_cannot_be_written_leaves_its_recording() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1"], BUSY);
    let mut command = Command::new(rsunwind());
    command
        .args(["record", "-f", "folded", "-o", "/dev/full"])
        .arg(program)
        .env("TMPDIR", bench.path(""));
    let result = output(&mut command);
    let told = text(&result.stderr);
    assert_eq!(result.status.code(), Some(3), "{told}");
    let kept = told
        .split("rsunwind export ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect("the remedy");
    let recording = collector::correlate::read(&[kept]).unwrap();
    assert!(recording.samples.len() > 20 && recording.session.is_some());
}

#[test]
fn a_rate_that_is_lowered_is_told() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1"], BUSY);
    let asked = text(
        &output(
            bench
                .record(&["-F", "100k", "--trigger", "perf"])
                .arg(&program),
        )
        .stderr,
    );
    let session = bench.recording().session.unwrap();
    let lowered = session.period_ns > 1_000_000_000_000 / session.asked_millihertz;
    assert_eq!(
        asked.contains("more samples would take more than they may (--max-overhead)"),
        lowered,
        "{} ns: {asked}",
        session.period_ns
    );
    let modest = text(&output(bench.record(&["-F", "99"]).arg(&program)).stderr);
    assert!(!modest.contains("--max-overhead"), "{modest}");
}

/// A reader of a pipe that stops reading keeps it waiting.
#[test]
fn ctrl_c_ends_the_writing_of_another_format_and_keeps_the_recording() {
    let bench = Bench::new();
    let pipe = bench.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut reader = fs::File::options();
    let mut reader = reader.read(true).write(true).open(&pipe).unwrap();
    let small = nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096);
    nix::fcntl::fcntl(&reader, small).unwrap();
    let mut command = Command::new(rsunwind());
    let child = command
        .args(["record", "-f", "html", "-o", "pipe", "true"])
        .current_dir(bench.path(""))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    reader.read_exact(&mut [0]).unwrap();
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGINT).unwrap();
    let result = child.wait_with_output().unwrap();
    let said = text(&result.stderr);
    assert_eq!(result.status.code(), Some(1), "{said}");
    let (_, kept) = said
        .split_once("the recording is kept: rsunwind export ")
        .expect(&said);
    let kept = bench.path(kept.split_whitespace().next().unwrap());
    let report = output(Command::new(rsunwind()).arg("report").arg(&kept));
    assert!(report.status.success(), "{}", text(&report.stderr));
}
