//! The commands on the fixtures of the crate `sframe`, and on this very program.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitCode};

use clap::Parser;

use super::{Arguments, Error, run_to};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn run(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Result<(bool, String), Error> {
    let program = [std::ffi::OsStr::new("sframe")];
    let line = Line::try_parse_from(
        program
            .into_iter()
            .chain(arguments.iter().map(|a| (*a).as_ref())),
    );
    let mut out = Vec::new();
    let code = run_to(&line.expect("a command line").arguments, &mut out)?;
    // An exit code can be compared with nothing but its print.
    let is_success = format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS);
    Ok((is_success, String::from_utf8(out).expect("text")))
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sframe/tests/fixtures")
        .join(name)
}

/// Each row in the columns of objdump's, its address, CFA and frame pointer as objdump prints them.
#[test]
fn dump_prints_what_objdump_prints() {
    let mut rows = 0;
    for entry in std::fs::read_dir(fixture("")).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "golden")
        {
            let golden = std::fs::read_to_string(&path).expect("a print");
            let (ok, dump) = run(&[&"dump", &path.with_extension("elf")]).expect("a dump");
            assert!(ok);
            let significant = |text: &str| -> Vec<String> {
                let lines = text
                    .lines()
                    .filter(|line| line.starts_with("    0") || line.contains("func idx"));
                lines.map(first_columns).collect()
            };
            assert_eq!(
                significant(&dump),
                significant(&golden),
                "{}",
                path.display()
            );
            rows += significant(&dump).len();
        }
    }
    assert!(rows > 300, "{rows}");
}

/// What this dump and objdump's have in common: not the return address, for which objdump has
/// letters, and not the size of a repeated block, which objdump leaves out.
fn first_columns(line: &str) -> String {
    let line = line.split(", block =").next().expect("a part");
    match line.starts_with("    0") && !line.contains("RA undefined") {
        true => line
            .split_whitespace()
            .take(3)
            .collect::<Vec<_>>()
            .join(" "),
        false => line.trim_end().to_owned(),
    }
}

#[test]
fn check_agrees_with_a_faithful_producer() {
    for name in [
        "chain-v1.elf",
        "rules-amd64-v3.elf",
        "rules-aarch64-v3.elf",
        "rules-s390x-v3.elf",
    ] {
        let (agrees, report) = run(&[&"check", &fixture(name)]).expect("a report");
        assert!(agrees, "{name}: {report}");
        assert!(report.contains(" 0 disagree"), "{name}: {report}");
    }
}

/// binutils 2.40 takes any register for the stack pointer, and 2.44 leaves out what it cannot say.
#[test]
fn check_finds_what_is_wrong_and_what_is_missing() {
    let (agrees, report) = run(&[&"check", &fixture("rules-amd64-v1.elf")]).expect("a report");
    assert!(!agrees);
    let found = report
        .contains("disagree  0x401030: .sframe says sp+24 c-16 c-8, .eh_frame r3+24 c-16 c-8");
    assert!(found, "{report}");
    let (agrees, report) = run(&[&"check", &fixture("chain-v2.elf")]).expect("a report");
    assert!(!agrees);
    // GNU ld's row for .plt.got.
    assert!(
        report.contains("disagree  0x1060: .sframe says sp+16 u c-8, .eh_frame sp+8 u c-8"),
        "{report}"
    );
    let holes: Vec<&str> = report
        .lines()
        .filter(|line| line.starts_with("hole"))
        .collect();
    assert_eq!(holes.len(), 1, "{report}");
    assert!(
        report.contains("1 functions of .eh_frame are missing from .sframe, 108 bytes of code"),
        "{report}"
    );
}

/// This program with `.sframe` added still runs, and all its rows agree with `.eh_frame`.
#[test]
fn convert_makes_a_program_that_runs_and_agrees() {
    let directory = tempfile::tempdir().expect("a directory");
    let this = std::env::current_exe().expect("this program");
    for version in ["2", "3"] {
        let output = directory.path().join(version);
        let (_, report) = run(&[
            &"convert",
            &this,
            &"-o",
            &output,
            &"--format",
            &version,
            &"--share-rows",
        ])
        .expect("a program");
        assert!(
            report.contains(" functions converted; .sframe of "),
            "{report}"
        );
        let list = Process::new(&output).arg("--list").output().expect("a run");
        assert!(list.status.success(), "{list:?}");
        assert!(
            String::from_utf8_lossy(&list.stdout)
                .contains("convert_makes_a_program_that_runs_and_agrees")
        );
        let (agrees, report) = run(&[&"check", &output]).expect("a report");
        assert!(agrees, "{report}");
        assert!(report.lines().count() < 100, "{report}");
        let again = run(&[&"convert", &output, &"-o", &directory.path().join("again")]);
        assert!(matches!(again, Err(Error::Unsuitable { .. })), "{again:?}");
    }
}

#[test]
fn errors_name_the_file() {
    let missing = run(&[&"dump", &"/nonexistent"]).expect_err("no file");
    assert!(
        missing
            .to_string()
            .starts_with("cannot read /nonexistent: "),
        "{missing}"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let text = directory.path().join("text");
    std::fs::write(&text, "text").expect("a file");
    let error = run(&[&"check", &text]).expect_err("no ELF file");
    assert!(
        error.to_string().starts_with(&text.display().to_string()),
        "{error}"
    );
}
