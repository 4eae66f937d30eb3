//! An interpreter that is linked with the library, as `linked/install` installs it: it runs as ever
//! by itself, and its frames are there where it is recorded.

use collector::profile::{Profile, Show};
use collector::recording::Thread;
use collector::symbolize::Places;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, cargo, output, text};
use rsunwind_tests::language::{assert_stacks, stacks};
use rsunwind_tests::profiles::delivered;
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::{lock, repository, target_directory};
use std::path::{Path, PathBuf};
use std::process::Command;

const WHOLE: [&str; 4] = [
    "main",
    "toy outer a.toy:10",
    "between",
    "toy inner b.toy:33",
];

/// Installs into the directory of this build, and gives that.
fn install() -> PathBuf {
    let _lock = lock::take("linked");
    let prefix = target_directory().join("linked/prefix");
    let mut command = Command::new(repository().join("linked/install"));
    command.env("PREFIX", &prefix).env_remove("DESTDIR");
    command.env("CARGO_TARGET_DIR", target_directory().join("linked"));
    let result = output(&mut command);
    assert!(result.status.success(), "{}", text(&result.stderr));
    prefix
}

/// What pkg-config says of it.
fn flags(prefix: &Path, which: &str) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args([which, "rsunwind"]);
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let result = output(&mut command);
    assert!(result.status.success(), "{}", text(&result.stderr));
    let said = text(&result.stdout);
    said.split_whitespace().map(str::to_owned).collect()
}

/// The interpreter, linked in one way.
fn toy(prefix: &Path, options: &[&str]) -> PathBuf {
    let include = flags(prefix, "--cflags");
    let mut arguments = vec!["-DLINKED"];
    arguments.extend(include.iter().map(String::as_str));
    arguments.extend(options);
    victim::compile(Compiler::C, "toy.c", &arguments)
}

#[test]
fn a_linked_interpreter_runs_plain_and_has_its_frames_where_it_is_recorded() {
    let prefix = install();
    let library = prefix.join("lib");
    let archive = library.join("librsunwind.a");
    let archive = archive.to_str().unwrap();
    let libraries = flags(&prefix, "--libs");
    let rpath = format!("-Wl,-rpath,{}", library.display());
    let mut shared: Vec<_> = libraries.iter().map(String::as_str).collect();
    shared.push(&rpath);
    // Exported functions of the program's come before those of what is preloaded.
    for options in [&shared[..], &[archive], &[archive, "-no-pie", "-rdynamic"]] {
        let toy = toy(&prefix, options);
        let plain = Run::plain(&toy).outcome().quiet();
        assert_eq!(plain.text(), "frames: none\n", "{options:?}");
        let bench = Bench::new();
        let result = output(bench.record(&["-F", "2000"]).arg(&toy));
        assert_eq!(
            text(&result.stdout),
            "frames: asked for\n",
            "{options:?}: {}",
            text(&result.stderr)
        );
        let profile = Profile::with(bench.recording(), &Places::default(), Show::default());
        assert_stacks(&profile, &WHOLE);
    }
    let fixed = toy(&prefix, &[archive, "-static"]);
    assert_eq!(Run::plain(fixed).outcome().quiet().text(), "frames: none\n");
    // One whose file describes its language, of whatever kind it is, is known to its own library.
    for kind in ["-pie", "-no-pie", "-static", "-static-pie"] {
        let noted = toy(&prefix, &[archive, "-DNOTED", kind]);
        let outcome = Run::plain(noted).outcome().quiet();
        assert_eq!(outcome.text(), "frames: 2\n", "{kind}");
    }
}

/// CPU time that each thread says it used, ns; that is all that it may say.
fn used(printed: &str) -> Vec<(u32, f64)> {
    let number = |line: &str| {
        let (tid, ns) = line.split_once(' ')?;
        Some((tid.parse().ok()?, ns.parse().ok()?))
    };
    let lines = printed.lines();
    let all = lines.map(|line| number(line).unwrap_or_else(|| panic!("{printed}")));
    all.collect()
}

/// Records a program of `records_itself.c`, by way of another one if that is given: its threads,
/// its child, and what they see of it. `unarmed_ns`: what its first thread may have used before it
/// was found.
fn assert_records_itself(options: &[&str], by_way_of: Option<&Path>, unarmed_ns: f64) {
    let prefix = install();
    let library = prefix.join("lib");
    let archive = library.join("librsunwind.a");
    let rpath = format!("-Wl,-rpath,{}", library.display());
    let include = flags(&prefix, "--cflags");
    let libraries = flags(&prefix, "--libs");
    let mut arguments: Vec<&str> = options.to_vec();
    match options.contains(&"-DSHARED") {
        true => {
            arguments.extend(libraries.iter().map(String::as_str));
            arguments.push(&rpath);
        }
        false => arguments.push(archive.to_str().unwrap()),
    }
    arguments.extend(include.iter().map(String::as_str));
    let program = victim::compile(Compiler::C, "records_itself.c", &arguments);
    judge(|| {
        let bench = Bench::new();
        let mut command = bench.record(&["-F", "2000"]);
        let result = output(command.args(by_way_of).arg(&program));
        let said = text(&result.stderr);
        assert_eq!(result.status.code(), Some(3), "{said}");
        let is_first = by_way_of.is_none();
        assert_eq!(said.contains("it unwinds itself"), is_first, "{said}");
        assert!(!said.contains("copied"), "{said}");
        let used = used(&text(&result.stdout));
        assert_eq!(used.len(), 3, "{used:?}");
        let profile = Profile::with(bench.recording(), &Places::default(), Show::default());
        let recording = &profile.recording;
        for (tid, ns) in used {
            let of_it = |thread: &&Thread| thread.tid == tid;
            let thread = recording.threads.iter().find(of_it).expect("it is known");
            // Not before it was found.
            let unarmed = thread.unarmed_cpu_ns() as f64;
            let got = delivered(&profile, tid, |_| true) as f64;
            assert_measured!(
                stands_for(got, ns - unarmed, (ns - unarmed) * 0.02 + 500_000.0),
                "{tid}: {got} of {ns}, {unarmed} ns before it was armed"
            );
            assert_measured!(unarmed < unarmed_ns, "{tid}: {unarmed} of {ns} ns unarmed");
        }
        let stacks = stacks(&profile).into_iter();
        let at_work = stacks.filter(|(names, _)| names.iter().any(|name| name == "work"));
        let (mut whole, mut all) = (0, 0);
        for (names, weight) in at_work {
            let has = |wanted: &[&str]| names.windows(wanted.len()).any(|part| part == wanted);
            let is_first = has(&WHOLE);
            let is_other = has(&[&["worker"], &WHOLE[1..]].concat());
            all += weight;
            whole += if is_first || is_other { weight } else { 0 };
        }
        assert_measured!(all > 500 && whole * 100 >= all * 98, "{whole} of {all}");
        assert_eq!(recording.processes.len(), 2 + usize::from(!is_first));
    });
}

#[test]
fn a_static_interpreter_records_itself() {
    assert_records_itself(&["-static"], None, 50e6);
}

/// Its environment names the session, and no library to be preloaded.
#[test]
fn a_dynamic_interpreter_without_the_preload_library_records_itself() {
    let keeps = "-DKEEPS=\"RSUNWIND\"";
    let way = victim::compile(Compiler::C, "bare_exec.c", &[keeps]);
    for options in [&["-DSHARED"][..], &["-pie"]] {
        assert_records_itself(options, Some(&way), 80e6);
    }
}

/// A crate of its own, with cargo's own profiles: many codegen units, and no link-time
/// optimisation.
#[test]
fn a_rust_interpreter_links_in_debug_and_in_release() {
    let target = target_directory().join("example");
    for profile in ["dev", "release"] {
        let lock = lock::take("example");
        let mut cargo = cargo();
        cargo.args(["build", "--quiet", "--profile", profile]);
        cargo.current_dir(repository().join("examples/interpreter"));
        cargo.env("CARGO_TARGET_DIR", &target);
        for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            cargo.env_remove(flags);
        }
        let built = output(&mut cargo);
        assert!(built.status.success(), "{}", text(&built.stderr));
        drop(lock);
        let folder = if profile == "dev" { "debug" } else { profile };
        let interpreter = target.join(folder).join("interpreter");
        let printed = "120, in lines [5, 5, 5, 5, 4, 8]\n";
        assert_eq!(Run::plain(&interpreter).outcome().quiet().text(), printed);
        let bench = Bench::new();
        let result = output(bench.record(&["-F", "2000"]).arg(&interpreter));
        assert_eq!(text(&result.stdout), printed);
        let profile = Profile::with(bench.recording(), &Places::default(), Show::default());
        let whole = [
            "toy main chunk factorial.toy:8",
            "toy factorial factorial.toy:4",
            "toy factorial factorial.toy:5",
        ];
        let has = |names: &[String], wanted: &str| names.iter().any(|name| name == wanted);
        let is_whole = |names: &[String]| whole.iter().all(|wanted| has(names, wanted));
        let stacks = stacks(&profile);
        let shown: u64 = stacks
            .iter()
            .filter(|(names, _)| is_whole(names))
            .map(|(_, weight)| weight)
            .sum();
        assert!(shown > 20, "{shown} of {}", stacks.len());
    }
}

/// Nothing but the header's functions, and no function that must be there.
#[test]
fn the_library_brings_nothing_else_along() {
    let prefix = install();
    for (file, option) in [("librsunwind.so", "-D"), ("librsunwind.a", "-g")] {
        let mut nm = Command::new("nm");
        let result = output(nm.arg(option).arg(prefix.join("lib").join(file)));
        let symbols = text(&result.stdout);
        let mut count = 0;
        for line in symbols.lines().filter(|line| line.contains(' ')) {
            let (kind, name) = line[17..].split_once(' ').unwrap();
            match kind {
                // Weak where Rust functions of ours look for it at run time, in the same object.
                "T" | "W" => {
                    assert!(name.starts_with("rsunwind_"), "{file}: {line}");
                    count += 1;
                }
                other => assert_eq!(other, "w", "{file}: {line}"),
            }
        }
        assert!(count > 15, "{file}: {count}");
    }
    // Binutils with clang's plug-in would read it in the place of the code.
    let mut sections = Command::new("readelf");
    let result = output(sections.arg("-SW").arg(prefix.join("lib/librsunwind.a")));
    let sections = text(&result.stdout);
    assert!(sections.contains(" .text") && !sections.contains(".llvmbc"));
}
