//! `rsunwind record` from outside: what it says and returns, and that the program it runs notices
//! nothing.
//!
//! Not here: what is written (`record_output.rs`), kinds of programs (`record_targets.rs`), signals
//! and time (`record_signals.rs`), and what becomes of the session (`record_session.rs`).

use rsunwind_tests::command::{BUSY, Bench, output, rsunwind, shell, status, text};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn the_exit_status_is_the_programs() {
    let bench = Bench::new();
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -SEGV $$", 139),
        ("kill -34 $$", 162),
    ] {
        assert_eq!(
            status(bench.record(&[]).args(["sh", "-c", script])),
            expected,
            "{script}"
        );
    }
}

#[test]
fn nobody_needs_to_read_what_is_said() {
    let bench = Bench::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = bench.record(&[]);
    command.args(["sh", "-c", "exit 7"]).stderr(writer);
    assert_eq!(command.status().unwrap().code(), Some(7));
    assert!(bench.path("profile.rsu").exists());
}

#[test]
fn what_is_no_command_line_is_refused_in_a_sentence() {
    let bench = Bench::new();
    let said = |arguments: &[&OsStr]| {
        let mut command = Command::new(rsunwind());
        let result = output(command.current_dir(bench.path("")).args(arguments));
        assert_eq!(result.status.code(), Some(2), "{arguments:?}");
        text(&result.stderr)
    };
    let bytes = OsStr::from_bytes(b"\xff");
    for arguments in [&[bytes][..], &["record".as_ref(), "--rat".as_ref()]] {
        let said = said(arguments);
        assert!(
            said.contains("--help") && !said.contains("panicked"),
            "{said}"
        );
        assert!(!said.contains("as a value"), "{said}");
    }
    let said = said(&["record", "-o", "a.nonsense", "true"].map(OsStr::new));
    let extensions = said.lines().filter(|line| line.starts_with("  "));
    let columns: Vec<_> = extensions.map(|line| line.find(" .")).collect();
    assert!(columns.len() > 5, "{said}");
    assert!(columns.iter().all(|column| *column == columns[0]), "{said}");
}

#[test]
fn nobody_needs_to_read_what_doctor_finds() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(rsunwind());
    let result = output(command.arg("doctor").stdout(writer));
    assert_eq!(text(&result.stderr), "");
}

#[test]
fn a_program_that_burns_time_is_recorded() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1"], BUSY);
    assert_eq!(status(bench.record(&["-F", "1k"]).arg(&program)), 3);
    let recording = bench.recording();
    assert_eq!(recording.processes.len(), 1);
    assert_eq!(recording.processes[0].executable, program.to_str().unwrap());
    assert!(
        recording.samples.len() > 20,
        "{} samples",
        recording.samples.len()
    );
    let session = recording.session.expect("the collector's account");
    assert_eq!(
        (session.wait_status, session.asked_millihertz),
        (3 << 8, 1_000_000)
    );
    assert_eq!(session.command, [program.to_str().unwrap()]);
    assert!(session.start_ns < session.end_ns);
}

#[test]
fn settings_reach_the_program() {
    let bench = Bench::new();
    let options = [
        "-F",
        "1.5k",
        "--trigger",
        "timer",
        "--unwind",
        "fp",
        "--max-depth",
        "77",
        "--size",
        "1M",
        "--no-follow",
    ];
    let printed = text(&output(bench.record(&options).args(["sh", "-c", "echo $RSUNWIND"])).stdout);
    for setting in [
        "rate=1500,",
        "trigger=timer,",
        "unwind=fp,",
        "depth=77,",
        "size=1048576,",
        "follow=no,",
        "session=/",
    ] {
        assert!(printed.contains(setting), "{setting} is not in {printed}");
    }
    assert_eq!(bench.recording().processes[0].max_depth, 77);
}

#[test]
fn the_environment_has_two_more_variables_and_keeps_its_order() {
    let bench = Bench::new();
    let direct = text(
        &output(
            Command::new("env")
                .env("LD_PRELOAD", "libm.so.6")
                .env("A_LAST", "x"),
        )
        .stdout,
    );
    let recorded = text(
        &output(
            bench
                .record(&[])
                .arg("env")
                .env("LD_PRELOAD", "libm.so.6")
                .env("A_LAST", "x"),
        )
        .stdout,
    );
    let preload = recorded
        .lines()
        .find_map(|line| line.strip_prefix("LD_PRELOAD="))
        .expect("LD_PRELOAD");
    let (ours, users) = preload.split_once(':').expect("two libraries");
    assert!(
        ours.contains("librsunwind_preload") && users == "libm.so.6",
        "{preload}"
    );
    let rest = |printed: &str| {
        let ours = |line: &&str| !line.starts_with("LD_PRELOAD=") && !line.starts_with("RSUNWIND=");
        printed
            .lines()
            .filter(ours)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // The working directory is the only other difference.
    let without_place = |lines: Vec<String>| {
        lines
            .into_iter()
            .filter(|line| !line.starts_with("PWD="))
            .collect::<Vec<_>>()
    };
    assert_eq!(without_place(rest(&direct)), without_place(rest(&recorded)));
}

#[test]
fn input_output_and_errors_are_the_programs() {
    let bench = Bench::new();
    let recorded = output(
        bench
            .record(&["-q"])
            .args(["sh", "-c", "echo out; echo err >&2"]),
    );
    assert_eq!(
        (text(&recorded.stdout), text(&recorded.stderr)),
        ("out\n".into(), "err\n".into())
    );
    let piped = output(&mut shell(
        "echo through | \"$@\" | cat",
        [
            rsunwind().as_os_str(),
            "record".as_ref(),
            "-qo".as_ref(),
            bench.path("x").as_os_str(),
            "cat".as_ref(),
        ],
    ));
    assert_eq!(text(&piped.stdout), "through\n");
    let told = text(&output(bench.record(&[]).arg("true")).stderr);
    assert!(told.contains("profile.rsu"), "{told}");
}

/// What `program` prints with and without rsunwind when started through `prefix`, which must not
/// matter.
fn same_under(prefix: &str, program: &[&str]) {
    let bench = Bench::new();
    let direct = output(&mut shell(prefix, program));
    let mut arguments = vec![rsunwind().to_str().unwrap(), "record", "-q", "-o"];
    let file = bench.path("profile.rsu");
    arguments.push(file.to_str().unwrap());
    arguments.extend(program);
    let recorded = output(&mut shell(prefix, arguments));
    assert_eq!(text(&direct.stdout), text(&recorded.stdout), "{prefix}");
    assert_eq!(direct.status.code(), recorded.status.code());
    assert!(!direct.stdout.is_empty());
    assert_eq!(bench.recording().processes.len(), 1, "{prefix}");
}

#[test]
fn signal_masks_and_dispositions_are_inherited() {
    let script = "while read -r line; do case $line in SigBlk*|SigIgn*) echo $line;; esac; done < /proc/self/status";
    let show = ["sh", "-c", script];
    same_under("exec \"$@\"", &show);
    same_under(
        "exec env --ignore-signal=PIPE --ignore-signal=HUP --ignore-signal=CHLD --block-signal=USR1 \"$@\"",
        &show,
    );
    same_under(
        "exec env --default-signal=PIPE --block-signal=TERM \"$@\"",
        &show,
    );
}

#[test]
fn descriptors_are_inherited_open_and_closed() {
    let show = [
        "sh",
        "-c",
        "for n in 0 1 2 3 4 5 6 7 8 9; do if [ -e /proc/$$/fd/$n ]; then echo $n; fi; done",
    ];
    same_under("exec \"$@\"", &show);
    same_under("exec \"$@\" <&-", &show);
    same_under("exec \"$@\" 2>&- 7</dev/null", &show);
}

#[test]
fn session_and_group_are_the_callers() {
    // Fields 5 to 8: process group, session, terminal, foreground group.
    same_under("exec \"$@\"", &["cut", "-d ", "-f5-8", "/proc/self/stat"]);
}

#[test]
fn commands_that_cannot_be_run_are_told_apart() {
    let bench = Bench::new();
    fs::write(bench.path("plain"), "").unwrap();
    let executable = |name: &str, content: &str| {
        fs::write(bench.path(name), content).unwrap();
        fs::set_permissions(bench.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    executable("no-interpreter", "#!/nonexistent/interpreter\n");
    for (command, expected, words) in [
        ("surely-no-such-program", 127, "command not found"),
        ("./surely-no-such-program", 127, "no such file"),
        ("./plain", 126, "chmod +x"),
        ("/", 126, "directory"),
        ("./no-interpreter", 126, "/nonexistent/interpreter"),
    ] {
        let result = output(bench.record(&[]).arg(command));
        let told = text(&result.stderr);
        assert_eq!(result.status.code(), Some(expected), "{command}: {told}");
        assert!(told.contains(words), "{command}: {told}");
        assert!(
            !bench.path("profile.rsu").exists(),
            "{command}: nothing was recorded"
        );
    }
    executable("tool", "#!/bin/sh\nexit 4\n");
    let hint = text(&output(bench.record(&[]).arg("tool")).stderr);
    assert!(hint.contains("did you mean ./tool?"), "{hint}");
    executable("bare", "exit 5\n");
    assert_eq!(
        status(bench.record(&[]).arg("./bare")),
        5,
        "a script without a first line runs in the shell"
    );
}

#[test]
fn what_is_asked_wrongly_is_refused_with_the_remedy() {
    let bench = Bench::new();
    for (options, words) in [
        (&["-F", "0"][..], "above 0"),
        (&["-F", "1000k"][..], "0.1 to 100000"),
        (&["-d", "0"][..], "above 0"),
        (&["--max-depth", "1"][..], "8..=4096"),
        (&["--trigger", "itimer"][..], "auto, perf, timer"),
        (&["--size", "1"][..], "64K"),
        (&["-p", "1"][..], "leave the command out"),
        (&["-a"][..], "leave the command out"),
        (&["--call-graph", "dwarf"][..], "--unwind"),
        (&["-c", "5000"][..], "/period=5000/"),
    ] {
        let result = output(bench.record(options).arg("true"));
        let told = text(&result.stderr);
        assert_eq!(result.status.code(), Some(2), "{options:?}: {told}");
        assert!(told.contains(words), "{options:?}: {told}");
    }
    assert_eq!(status(&mut bench.record(&[])), 2, "no command");
}

#[test]
fn the_library_finds_a_place_without_a_home() {
    let bench = Bench::new();
    let mut command = bench.record(&["-q"]);
    command
        .args(["sh", "-c", "echo $LD_PRELOAD"])
        .env("HOME", "/proc")
        .env("XDG_CACHE_HOME", "/proc/none");
    let first = output(&mut command);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    assert_eq!(bench.recording().processes.len(), 1);
    // Where the user wants it: made with its directories, kept for the next time.
    let cache = bench.path("cache");
    fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let second = output(
        bench
            .record(&["-q"])
            .args(["sh", "-c", "echo $LD_PRELOAD"])
            .env("XDG_CACHE_HOME", &cache),
    );
    let path = text(&second.stdout).trim().to_owned();
    assert!(path.starts_with(cache.to_str().unwrap()), "{path}");
    assert!(fs::read(&path).unwrap().starts_with(b"\x7fELF"));
    // A damaged one is not given to anybody.
    fs::write(&path, "damaged").unwrap();
    let third = output(
        bench
            .record(&["-q"])
            .arg("true")
            .env("XDG_CACHE_HOME", &cache),
    );
    assert_eq!(
        (third.status.code(), text(&third.stderr)),
        (Some(0), String::new())
    );
    assert!(fs::read(&path).unwrap().starts_with(b"\x7fELF"));
    assert_eq!(bench.recording().processes.len(), 1);
}
