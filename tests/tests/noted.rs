//! An interpreter whose own file describes its language, in a note: it is linked with nothing, and
//! its frames are there where it is recorded.

use collector::profile::{Profile, Show};
use collector::symbolize::Places;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::language::{assert_stacks, stacks};
use rsunwind_tests::repository;
use rsunwind_tests::run::Run;
use rsunwind_tests::victim::{self, Compiler};
use std::path::{Path, PathBuf};

const WHOLE: [&str; 4] = [
    "main",
    "toy outer a.toy:10",
    "between",
    "toy inner b.toy:33",
];

fn toy(options: &[&str]) -> PathBuf {
    let include = repository().join("librsunwind/include");
    let include = format!("-I{}", include.display());
    victim::compile(Compiler::C, "toy.c", &[options, &[&include]].concat())
}

/// What the program printed, what was said of what is left out, and the profile.
fn record(program: &Path, arguments: &[&Path], rate: &str) -> (String, Vec<String>, Profile) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", rate]);
    let result = output(command.arg(program).args(arguments));
    let said = text(&result.stderr);
    assert!(result.status.success(), "{said}");
    // How fast walks are is the machine's business.
    let is_of_notes = |line: &&str| line.contains("left out") && !line.contains("walks are slow");
    let lines = said.lines().filter(is_of_notes);
    let lines = lines.map(str::to_owned).collect();
    let profile = Profile::with(bench.recording(), &Places::default(), Show::default());
    (text(&result.stdout), lines, profile)
}

#[test]
fn an_interpreter_that_is_linked_with_nothing_has_its_frames() {
    for options in [
        &["-DNOTED"][..],
        &["-DNOTED", "-no-pie"],
        &[
            "-DNOTED",
            "-flto",
            "-O2",
            "-fno-optimize-sibling-calls",
            "-Wl,--gc-sections",
            "-s",
        ],
    ] {
        let toy = toy(options);
        assert_eq!(Run::plain(&toy).outcome().quiet().text(), "done\n");
        let (printed, said, profile) = record(&toy, &[], "2000");
        assert_eq!(
            (&*printed, said.len()),
            ("done\n", 0),
            "{options:?}: {said:?}"
        );
        match options.contains(&"-s") {
            false => assert_stacks(&profile, &WHOLE),
            true => {
                // Stripped of names, but of the language's own.
                let both = |names: &[String]| {
                    let of_toy = names.iter().filter(|name| name.starts_with("toy "));
                    of_toy.eq(["toy outer a.toy:10", "toy inner b.toy:33"])
                };
                let stacks = stacks(&profile);
                let shown = stacks.iter().filter(|(names, _)| both(names));
                let weight: u64 = shown.map(|(_, weight)| weight).sum();
                assert!(weight > 20, "{stacks:?}");
            }
        }
    }
}

#[test]
fn notes_that_are_not_good_are_left_out_with_a_line() {
    for (size, content, wanted) in [
        (
            "8",
            ".long 7, 0",
            "its note is of version 7, this is version 1",
        ),
        ("4", ".long 1", "its note is cut short"),
        (
            "8",
            ".long 1, 0x7ffffff0",
            "its description is not in the file",
        ),
        (
            "8",
            ".long 1, NUMBERS - .",
            "its description has 7 bytes instead of 40",
        ),
        (
            "8",
            ".long 1, ELSEWHERE - .",
            "its callback is not in the file",
        ),
    ] {
        let (size, content) = (
            format!("-DNOTE_SIZE=\"{size}\""),
            format!("-DNOTE=\"{content}\""),
        );
        let (printed, said, profile) = record(&toy(&[&size, &content]), &[], "2000");
        assert_eq!(printed, "done\n");
        assert!(said.len() == 1 && said[0].contains(wanted), "{said:?}");
        assert_stacks(&profile, &["main", "toy_run", "between", "toy_run"]);
    }
}

/// Libraries with an interpreter are opened, run and closed by several threads at a time. While one
/// is closed the languages of all are taken back: those samples have native frames alone.
#[test]
fn interpreters_come_and_go_under_fire() {
    let compiled = toy(&["-DNOTED", "-DLIBRARY", "-shared", "-fPIC"]);
    let directory = tempfile::tempdir().unwrap();
    let copies: Vec<_> = (0..4)
        .map(|number| {
            let copy = directory.path().join(format!("libtoy{number}.so"));
            std::fs::copy(&compiled, &copy).unwrap();
            copy
        })
        .collect();
    let rounds = 200;
    let mut arguments = vec![Path::new("200")];
    arguments.extend(copies.iter().map(PathBuf::as_path));
    let (printed, said, profile) = record(&victim::c("unload.c"), &arguments, "10k");
    assert_eq!(printed, format!("{}\n", 3 * rounds * 42));
    assert_eq!(said.len(), 0, "{said:?}");
    let (mut with, mut without, mut between) = (0, 0, 0);
    for (names, weight) in stacks(&profile) {
        let Some(work) = names.iter().position(|name| name == "work") else {
            continue;
        };
        let names: Vec<_> = names[..work].iter().map(String::as_str).collect();
        let native = ["answer", "toy_run", "between", "toy_run"];
        match () {
            () if names.ends_with(&["answer", WHOLE[1], WHOLE[2], WHOLE[3]]) => with += weight,
            () if names.ends_with(&native) => without += weight,
            // The languages were taken back between two frames of this walk.
            () if names.ends_with(&["answer", native[1], WHOLE[2], WHOLE[3]]) => between += weight,
            // Another thread closes the very library: its tables are out of use meanwhile.
            () if !names.iter().any(|name| name.starts_with("toy ")) => without += weight,
            () => panic!("{names:?}"),
        }
    }
    let all = with + without + between;
    assert!(
        with > 100 && between < all / 10,
        "{with} and {between} of {all}"
    );
}
