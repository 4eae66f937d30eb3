//! Places that cannot take a recording: the program runs all the same, one line says why it is not
//! profiled, and what was written stays readable.

use rsunwind_tests::library;
use rsunwind_tests::recording::Recording;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;
use std::path::Path;

/// Runs `burn 1500` under a shell that prepares for it: `$OUT` is the recording, `$GO` starts the
/// program in the shell's own process.
fn prepared(preparation: &str, output: &Path) -> Outcome {
    Run::plain("bash")
        .env("LIBRARY", library::path())
        .env("OUT", output)
        .env("BURN", victim::c("burn.c"))
        .args(["-c", &format!("{preparation}; export LD_PRELOAD=$LIBRARY RSUNWIND=rate=10000,cost=1,output=$OUT; exec $BURN 1500")])
        .outcome()
}

#[track_caller]
fn complains(outcome: &Outcome, reason: &str) {
    let errors = outcome.errors();
    assert!(outcome.status.success(), "{}: {errors}", outcome.status);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.starts_with("rsunwind: not profiled: ") && errors.contains(reason),
        "{errors}"
    );
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("%p.rsu");
    complains(
        &prepared("true", &directory.path().join("missing/%p.rsu")),
        "missing/",
    );
    complains(&prepared("true", Path::new("/proc/%p.rsu")), "/proc/");
    complains(&prepared("mkdir ${OUT/\\%p/$$}", &output), "directory");
    complains(
        &prepared(
            "echo precious >target; ln -s target ${OUT/\\%p/$$}"
                .replace(
                    "target",
                    &directory.path().join("target").display().to_string(),
                )
                .as_str(),
            &output,
        ),
        "symbolic link",
    );
    assert_eq!(
        std::fs::read_to_string(directory.path().join("target")).unwrap(),
        "precious\n"
    );
}

#[test]
fn a_limit_on_file_size_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("%p.rsu");
    complains(&prepared("ulimit -f 2", &output), "limit");
    // Room for a chunk or two: the rest is lost, and counted.
    let outcome = prepared("ulimit -f 80", &output).quiet();
    assert_eq!(outcome.text(), "");
    let file = directory
        .path()
        .read_dir()
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.metadata().unwrap().len() > 4096);
    let recording = Recording::read(&file.unwrap());
    assert!(recording.samples().count() > 100);
    assert!(recording.lost() > 100, "{}", recording.lost());
}

#[test]
fn a_full_disk_loses_samples_only() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, kept) = (directory.path().join("disk"), directory.path().join("kept"));
    for path in [&disk, &kept] {
        std::fs::create_dir(path).unwrap();
    }
    let script = "mount -t tmpfs -o size=80k none $DISK || exit 77
        LD_PRELOAD=$LIBRARY RSUNWIND=rate=10000,cost=1,output=$DISK/%p.rsu $BURN 1500; echo $?
        cp $DISK/*.rsu $KEPT
        head -c 100k /dev/zero >$DISK/filler 2>/dev/null
        LD_PRELOAD=$LIBRARY RSUNWIND=rate=10000,cost=1,output=$DISK/second.%p.rsu $BURN 10; echo $?";
    let outcome = Run::plain("unshare")
        .args(["--map-root-user", "--mount", "bash", "-c", script])
        .env("LIBRARY", library::path())
        .env("BURN", victim::c("burn.c"))
        .env("DISK", &disk)
        .env("KEPT", &kept)
        .outcome();
    assert_eq!(outcome.text(), "0\n0\n", "{}", outcome.errors());
    complains(&outcome, "no space left");
    let file = kept.read_dir().unwrap().flatten().next().unwrap().path();
    let recording = Recording::read(&file);
    assert!(recording.samples().count() > 100);
    assert!(recording.lost() > 100, "{}", recording.lost());
}

#[test]
fn a_program_killed_at_once_leaves_a_readable_file() {
    for _ in 0..5 {
        let run = Run::profiled("rate=10000,cost=1", victim::c("burn.c")).args(["100000", "3"]);
        let directory = run.recordings_directory().unwrap().to_owned();
        let outcome = run.outcome_with(|pid| {
            let begun = || {
                directory
                    .read_dir()
                    .unwrap()
                    .flatten()
                    .any(|entry| entry.metadata().unwrap().len() > 200_000)
            };
            while !begun() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            // SAFETY: a plain system call, on a child that is not reaped yet.
            #[allow(unsafe_code)]
            unsafe {
                libc::kill(pid, libc::SIGKILL)
            };
        });
        assert_eq!(outcome.signal(), Some(libc::SIGKILL));
        let recording = outcome.recording();
        let samples = recording.samples().count() as u64;
        let counted: u64 = recording.threads.values().map(|thread| thread.weight).sum();
        let delivered: u64 = recording
            .threads
            .values()
            .map(|thread| thread.delivered())
            .sum();
        assert!(samples > 200, "{samples}");
        // A sample may be written and not yet counted, in each thread.
        assert!(
            delivered.abs_diff(counted) <= 4 * 4,
            "{delivered} {counted}"
        );
        // On a busy machine it may be killed before all of them have begun.
        let threads = recording.threads.len();
        assert!((2..=4).contains(&threads), "{threads}");
    }
}
