//! The `rsunwind` command under test, and small programs to run under it.
//!
//! Not here: what a recording says; tests read it with [`collector::recording`].

use crate::lock;
use collector::correlate;
use collector::recording::Recording;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A program that burns about a tenth of a second and exits with status 3.
pub const BUSY: &str = "int main(void) { volatile double x = 0; for (long i = 0; i < 50000000; i++) x += i; return 3; }";

/// The command, built in this test's own profile if it is not.
///
/// # Panics
/// If it cannot be built.
pub fn rsunwind() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let test = std::env::current_exe().expect("a test has a file");
        let profile = test
            .ancestors()
            .nth(2)
            .expect("tests lie in target/PROFILE/deps");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("tests lie in the workspace");
        let optimised = profile.ends_with("release");
        lock::once_a_run(&format!("rsunwind-{optimised}"), || {
            let mut cargo = cargo();
            let package = ["--package", "rsunwind-collector", "--bin", "rsunwind"];
            cargo.current_dir(root).args(["build", "--quiet"]);
            cargo.args(package).args(optimised.then_some("--release"));
            assert!(
                cargo.status().expect("cargo runs").success(),
                "rsunwind builds"
            );
        });
        profile.join("rsunwind")
    })
}

/// cargo, without what tests are told of their own package: some build scripts look at that, and
/// what they build would be built anew.
#[must_use]
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let about_us =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(about_us) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// A program of `examples/`, optimised.
///
/// # Panics
/// If it does not build.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    lock::once_a_run(&format!("example-{name}"), || {
        let package = ["--package", "rsunwind-examples", "--bin", name];
        let mut cargo = cargo();
        cargo.current_dir(crate::repository());
        cargo.args(["build", "--quiet", "--release"]).args(package);
        assert!(cargo.status().expect("cargo runs").success(), "{name}");
    });
    crate::target_directory().join("release").join(name)
}

/// A directory of its own for one test, with ways to fill it.
#[derive(Debug)]
pub struct Bench {
    directory: TempDir,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// An empty directory.
    ///
    /// # Panics
    /// Without room for one.
    #[must_use]
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// A path in the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles a C program with the compiler and flags given, and gives its path.
    ///
    /// # Panics
    /// If it does not compile.
    #[must_use]
    pub fn compile(&self, compiler: &str, flags: &[&str], source: &str) -> PathBuf {
        let (file, program) = (self.path("program.c"), self.path("program"));
        fs::write(&file, source).expect("room for a source");
        let status = Command::new(compiler)
            .arg("-o")
            .arg(&program)
            .arg(&file)
            .args(flags)
            .status();
        assert!(
            status
                .expect("tests/setup installs the compilers")
                .success(),
            "{compiler} {flags:?}"
        );
        program
    }

    /// `rsunwind record`, writing `profile.rsu` here, ready for the program and its arguments. It
    /// prints the whole summary; with `-q` none, and stores no names, which takes a while.
    #[must_use]
    pub fn record(&self, options: &[&str]) -> Command {
        let mut command = Command::new(rsunwind());
        command
            .current_dir(self.directory.path())
            .args(["record", "-o", "profile.rsu"])
            .args(options);
        match options.contains(&"-q") {
            true => command.args(["--names", "0"]),
            false => command.arg("-v"),
        };
        command.arg("--");
        command
    }

    /// What [`Bench::record`] writes while it is not done, if it has begun.
    #[must_use]
    pub fn begun(&self) -> Option<PathBuf> {
        let files = fs::read_dir(self.directory.path()).into_iter().flatten();
        let paths = files.flatten().map(|entry| entry.path());
        let is_begun = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("profile.rsu.") && name.ends_with(".rsu")
        };
        paths.into_iter().find(is_begun)
    }

    /// Reads what [`Bench::record`] wrote.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn recording(&self) -> Recording {
        correlate::read(&[self.path("profile.rsu")]).expect("a recording")
    }
}

/// Runs a command to its end, and gives what it wrote.
///
/// # Panics
/// If it cannot be run.
pub fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it runs")
}

/// Runs a command to its end, and gives its output.
///
/// # Panics
/// If it does not succeed.
pub fn succeed(command: &mut Command) -> String {
    let result = output(command);
    let said = text(&result.stderr);
    assert!(result.status.success(), "{command:?}: {said}");
    text(&result.stdout)
}

/// Runs a command to its end, and gives the status that it exits with.
///
/// # Panics
/// If a signal ends it: rsunwind exits, whatever ended the program.
pub fn status(command: &mut Command) -> i32 {
    output(command).status.code().expect("it exits")
}

/// A shell that runs `script` with `arguments` as `$@`.
pub fn shell<S: AsRef<OsStr>>(script: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(arguments);
    command
}

/// Text of a program's output.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Times a process's first thread went to sleep.
///
/// # Panics
/// If there is no such process.
#[must_use]
pub fn sleeps(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .expect("the kernel counts them")
}

/// Waits until something is there, a minute at most.
///
/// # Panics
/// If it does not come.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited a minute for {what}");
}
