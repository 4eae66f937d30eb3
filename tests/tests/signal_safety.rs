//! What a signal handler must not do, and that ours does not: looked for in the library's code, and
//! watched in programs under fire.

use rsunwind_tests::run::Run;
use rsunwind_tests::{library, victim};
use std::process::Command;

const FAST: &str = "rate=10000,cost=1";

/// How long the storm lasts, in seconds: more with `STORM_SECONDS`.
fn storm_seconds() -> String {
    std::env::var("STORM_SECONDS").unwrap_or_else(|_| "8".into())
}

fn disassembly() -> String {
    let mut objdump = Command::new("objdump");
    objdump
        .args(["--disassemble", "--demangle", "--no-show-raw-insn"])
        .arg(library::path());
    let output = objdump.output().expect("objdump, of binutils");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn almost_nothing_in_the_library_can_panic() {
    // gimli keeps one check that its callers make impossible; the safety net would catch it.
    const ALLOWED: [&str; 1] = ["gimli::read::cfi::parse_encoded_value"];
    let text = disassembly();
    let mut function = "";
    let mut calls = 0;
    for line in text.lines() {
        if let Some(name) = line
            .strip_suffix(">:")
            .and_then(|line| Some(line.split_once('<')?.1))
        {
            function = name;
            continue;
        }
        let Some((_, target)) = line.split_once("call ").or_else(|| line.split_once("jmp ")) else {
            continue;
        };
        calls += 1;
        let panics = [
            "panicking",
            "unwrap_failed",
            "expect_failed",
            "index_fail",
            "rust_begin_unwind",
        ];
        let is_one = |name: &str| panics.iter().any(|panic| name.contains(panic));
        if is_one(target) && !is_one(function) {
            assert!(
                ALLOWED.contains(&function),
                "{function} can panic: {}",
                line.trim()
            );
        }
    }
    assert!(calls > 500, "the disassembly was understood: {calls} calls");
}

#[test]
fn the_handler_calls_no_allocator_and_takes_no_lock() {
    let (program, watch) = (victim::c("allocating.c"), victim::shared("forbidden.c"));
    // The control: a handler that allocates is found out.
    let guilty = Run::plain(&program)
        .env("LD_PRELOAD", &watch)
        .arg("guilty")
        .outcome();
    assert_eq!(guilty.signal(), Some(libc::SIGABRT));
    assert_eq!(guilty.errors(), "forbidden call in a handler: malloc\n");
    let plain = Run::plain(&program)
        .env("LD_PRELOAD", &watch)
        .outcome()
        .quiet();
    let profiled = Run::profiled(FAST, &program)
        .preload(&watch, false)
        .outcome()
        .quiet();
    let count = |text: String| text.trim().parse::<u64>().unwrap();
    let (plain, with_us) = (count(plain.text()), count(profiled.text()));
    let samples = profiled.recording().samples().count() as u64;
    assert!(samples > 500, "{samples}");
    // Looking up the functions that we stand in front of, once each, is all that we ever make the
    // program allocate.
    assert!(
        with_us - plain <= 50,
        "{plain} calls without, {with_us} with {samples} samples"
    );
}

#[test]
fn registers_the_red_zone_and_errno_are_as_before() {
    let program = victim::c("registers.c");
    for settings in [
        FAST,
        "rate=10000,cost=1,trigger=timer",
        "rate=10000,cost=1,unwind=fp",
    ] {
        let outcome = Run::profiled(settings, &program).outcome().quiet();
        assert_eq!(outcome.text(), "right\n", "{settings}");
        assert!(outcome.recording().samples().count() > 30, "{settings}");
    }
}

#[test]
fn a_program_that_does_everything_at_once_survives() {
    let (first, second) = (victim::shared("plugin.c"), tempfile::tempdir().unwrap());
    let copy = second.path().join("plugin.so");
    std::fs::copy(&first, &copy).unwrap();
    let outcome = Run::profiled(FAST, victim::cpp("storm.cpp"))
        .arg(storm_seconds())
        .arg(&first)
        .arg(&copy)
        .outcome()
        .quiet();
    assert_eq!(outcome.text(), "right\n");
    let samples: usize = outcome
        .recordings()
        .iter()
        .map(|recording| recording.samples().count())
        .sum();
    assert!(samples > 3000, "{samples}");
}
