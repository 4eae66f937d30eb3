//! The examples that people begin with do what they say.

use rsunwind_tests::command::{Bench, cargo, example, output, rsunwind, status, text};
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::{library, lock, repository, target_directory};
use std::path::PathBuf;
use std::process::Command;

/// An example of a crate, which `cargo run --example` would build. Of the whole workspace, since
/// dependencies are built already with all features that any of its crates asks for.
fn example_of_a_crate(name: &str) -> PathBuf {
    lock::once_a_run(&format!("example-{name}"), || {
        let mut cargo = cargo();
        cargo.current_dir(repository());
        cargo.args(["build", "--quiet", "--workspace", "--example", name]);
        assert!(cargo.status().expect("cargo runs").success(), "{name}");
    });
    target_directory().join("debug/examples").join(name)
}

fn printed(command: &mut Command) -> String {
    let ended = output(command);
    let errors = text(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {errors}");
    text(&ended.stdout)
}

#[test]
fn a_client_in_c_gets_its_stack() {
    let source = repository().join("examples/client.c");
    let include = format!("-I{}", repository().join("librsunwind/include").display());
    let directory = library::path().parent().unwrap().to_str().unwrap();
    let (find, rpath) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    let options = [
        &*include,
        &find,
        &rpath,
        "-l:librsunwind_preload.so",
        "-Wall",
        "-Werror",
    ];
    let client = victim::compile(Compiler::C, source.to_str().unwrap(), &options);
    let told = printed(&mut Command::new(client));
    let (first, addresses) = told.split_once('\n').unwrap();
    assert!(first.ends_with(" frames, to the root"), "{told}");
    assert!(addresses.lines().count() >= 4, "{told}");
}

#[test]
fn a_client_in_rust_has_stacks_and_labels_and_a_recording_is_read() {
    let client = example_of_a_crate("client");
    assert!(printed(&mut Command::new(&client)).starts_with("2 stacks, 2 to the root, up to "));
    let bench = Bench::new();
    assert_eq!(status(bench.record(&[]).arg(&client)), 0);
    let mut report = Command::new(rsunwind());
    report.args(["report", "--by", "label=request"]);
    let table = printed(report.arg(bench.path("profile.rsu")));
    assert!(table.contains("/cart") && table.contains("/pay"), "{table}");
    let mut hottest = Command::new(example_of_a_crate("hottest"));
    let read = printed(hottest.arg(bench.path("profile.rsu")));
    assert!(read.contains("descend"), "{read}");
    let missing = output(hottest.arg("missing.rsu"));
    assert!(text(&missing.stderr).contains("missing.rsu"));
}

#[test]
fn a_program_is_recorded_without_a_collector() {
    let bench = Bench::new();
    let folder = rsunwind().parent().unwrap().to_str().unwrap();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let mut script = Command::new(repository().join("examples/preload.sh"));
    script.current_dir(bench.path("")).env("PATH", path);
    let report = printed(script.arg(example("split")));
    assert!(report.contains("half"), "{report}");
}
