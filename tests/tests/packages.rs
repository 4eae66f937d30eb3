//! The Debian package: what is installed works, and nothing is left when it is removed.

use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::repository;
use std::fs;
use std::path::Path;
use std::process::Command;

#[track_caller]
fn run(command: &mut Command) -> String {
    let ended = output(command);
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{command:?}: {out}{err}");
    out
}

/// dpkg with a root and a database of its own.
fn dpkg(root: &Path) -> Command {
    let mut dpkg = Command::new("dpkg");
    // What the package depends on is in the root of this machine, not in this one.
    dpkg.args(["--force-depends", "--force-not-root", "--log=/dev/null"]);
    // Nor is a shell there.
    dpkg.arg("--force-script-chrootless");
    dpkg.arg("--root").arg(root);
    dpkg
}

/// Files and links below a directory, without dpkg's own.
fn files(root: &Path) -> Vec<String> {
    let found = run(Command::new("find").current_dir(root).args([
        ".",
        "-path",
        "./var/lib/dpkg",
        "-prune",
        "-o",
        "-not",
        "-type",
        "d",
        "-print",
    ]));
    found.lines().map(str::to_owned).collect()
}

#[test]
fn the_debian_package_is_installed_used_and_removed() {
    let bench = Bench::new();
    // As the other tests build the command, which takes a while.
    let mut make = Command::new(repository().join("packaging/deb"));
    let made = run(make.env("PROFILE", "dev").arg(bench.path("")));
    let packages: Vec<&str> = made.lines().collect();
    assert_eq!(packages.len(), 2, "{made}");
    let control = run(Command::new("dpkg-deb")
        .arg("--field")
        .args([packages[0], "Depends"]));
    assert!(control.contains("libc6 (>= "), "{control}");
    let about_library = run(Command::new("dpkg-deb")
        .args(["--info", packages[0]])
        .args(["triggers", "shlibs"]));
    assert!(
        about_library.contains("ldconfig") && about_library.contains("librsunwind 0 rsunwind (>="),
        "{about_library}"
    );

    let root = bench.path("root");
    for directory in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(directory)).unwrap();
    }
    for file in ["status", "available"] {
        fs::write(root.join("var/lib/dpkg").join(file), "").unwrap();
    }
    run(dpkg(&root).arg("--install").args(&packages));
    let installed = files(&root);
    for wanted in [
        "/bin/rsunwind",
        "/man1/rsunwind-record.1.gz",
        "/completions/rsunwind",
        "/librsunwind.so",
        "/rsunwind.h",
        "/rsunwind.pc",
        ".debug",
    ] {
        let there = installed.iter().any(|file| file.ends_with(wanted));
        assert!(there, "no {wanted} in {installed:?}");
    }

    let program = bench.compile("gcc", &[], "int main(void) { return 7; }");
    let mut record = Command::new(root.join("usr/bin/rsunwind"));
    record
        .current_dir(bench.path(""))
        .args(["record", "-o", "profile.rsu", "--"]);
    let ended = output(record.arg(&program));
    assert_eq!(ended.status.code(), Some(7), "{}", text(&ended.stderr));
    assert!(bench.path("profile.rsu").exists());
    let library = run(Command::new(root.join("usr/bin/rsunwind")).arg("library"));
    let mut preloaded = Command::new(&program);
    let settings = format!("output={}", bench.path("own.rsu").display());
    let preloaded = preloaded
        .env("LD_PRELOAD", library.trim_end())
        .env("RSUNWIND", settings);
    assert_eq!(output(preloaded).status.code(), Some(7));
    let written = fs::read_dir(bench.path("")).unwrap();
    let names = written.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(
        names.into_iter().any(|name| name.starts_with("own.")),
        "no recording of its own"
    );

    // As root's recordings leave it.
    fs::create_dir_all(root.join("var/cache/rsunwind")).unwrap();
    fs::copy(library.trim_end(), root.join("var/cache/rsunwind/library")).unwrap();
    run(dpkg(&root).args(["--purge", "rsunwind-dbgsym", "rsunwind"]));
    assert!(files(&root).is_empty(), "{:?}", files(&root));
}
