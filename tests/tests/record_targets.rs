//! Kinds of programs under `rsunwind record`: those that load the preload library, and those that
//! cannot.

use rsunwind_tests::command::{BUSY, Bench, output, status, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn without_perf_a_static_program_runs_unprofiled_and_its_children_do_not() {
    let bench = Bench::new();
    let source = "#include <stdlib.h>\nint main(void) { return WEXITSTATUS(system(\"exit 6\")); }";
    let program = bench.compile("gcc", &["-static", "-w"], source);
    let result = output(bench.record(&["--trigger", "timer"]).arg(&program));
    assert_eq!(result.status.code(), Some(6));
    assert!(
        text(&result.stderr).contains("statically linked"),
        "{}",
        text(&result.stderr)
    );
    let names: Vec<_> = bench
        .recording()
        .processes
        .iter()
        .map(|process| process.executable.clone())
        .collect();
    assert!(names.iter().any(|name| name.ends_with("sh")), "{names:?}");

    let lonely = bench.compile("gcc", &["-static"], BUSY);
    let result = output(bench.record(&["--trigger", "timer"]).arg(&lonely));
    assert_eq!(result.status.code(), Some(3));
    assert!(
        text(&result.stderr).contains("nothing was recorded"),
        "{}",
        text(&result.stderr)
    );
}

#[test]
fn without_perf_a_setuid_program_runs_unprofiled() {
    let bench = Bench::new();
    let program = bench.path("true");
    fs::copy("/bin/true", &program).unwrap();
    let other = if fs::metadata("/proc/self")
        .is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0)
    {
        std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        program
    } else {
        "/usr/bin/su".into()
    };
    let mut command = bench.record(&["--trigger", "timer"]);
    let result = output(command.arg(&other).arg("--version"));
    let told = text(&result.stderr);
    assert_eq!(result.status.code(), Some(0), "{told}");
    assert!(
        told.contains("setuid") && told.contains("nothing was recorded"),
        "{told}"
    );
}

#[test]
fn a_musl_program_is_recorded() {
    let bench = Bench::new();
    let program = bench.compile("musl-gcc", &["-O1"], BUSY);
    let result = output(bench.record(&["-q"]).arg(&program));
    assert_eq!(
        (result.status.code(), text(&result.stderr)),
        (Some(3), String::new())
    );
    assert!(bench.recording().samples.len() > 20);
}

#[test]
fn every_process_of_a_tree_is_recorded_once() {
    let bench = Bench::new();
    assert_eq!(
        status(
            bench
                .record(&[])
                .args(["sh", "-c", "/bin/true; /bin/true; exec /bin/true"])
        ),
        0
    );
    let recording = bench.recording();
    let of = |name: &str| {
        recording
            .processes
            .iter()
            .filter(|process| process.executable.ends_with(name))
            .count()
    };
    assert_eq!(of("/true"), 3, "{:?}", recording.processes);
    assert!(recording.processes.iter().all(|process| process.identified));
}
