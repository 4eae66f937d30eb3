//! Programs that may not use perf, or not all of it: they are sampled as well as they may be, and
//! the recording says how and why.

use engine::wire::sample::Trigger;
use rsunwind_tests::paranoid::{NOBODY, Setting, for_everybody};
use rsunwind_tests::run::Run;
use rsunwind_tests::{library, victim};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

#[test]
fn an_ordinary_user_is_sampled_as_far_as_permitted() {
    let (directory, files) = for_everybody(&[library::path(), &victim::c("burn.c")]);
    let [library, program] = &files[..] else {
        unreachable!()
    };
    for (level, trigger, refused) in [
        ("1", Trigger::PerfKernel, 0),
        ("2", Trigger::PerfUser, libc::EACCES),
    ] {
        let _setting = Setting::paranoid(level)
            .expect("this test changes a kernel setting and must run as root");
        let output = directory.path().join(format!("level{level}.rsu"));
        let outcome = Run::profiled_to(
            "rate=1000",
            &directory.path().join(format!("level{level}.%p.rsu")),
            program,
        )
        .env("LD_PRELOAD", library)
        .args(["300", "1"])
        .with(|command| {
            command.uid(NOBODY).gid(NOBODY);
        })
        .outcome()
        .quiet();
        assert_eq!(outcome.text(), "", "{}", output.display());
        let recording =
            rsunwind_tests::recording::Recording::read(&only_file(directory.path(), level));
        for thread in recording.threads.values() {
            assert_eq!(
                (thread.triggers.last(), thread.refused),
                (Some(&trigger), refused as u32),
                "level {level}"
            );
            assert!(
                thread.delivered() >= 250,
                "level {level}: {}",
                thread.delivered()
            );
        }
    }
}

fn only_file(directory: &Path, level: &str) -> PathBuf {
    let prefix = format!("level{level}.");
    let entries = directory.read_dir().unwrap().flatten();
    let mut files =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    files.next().expect("a recording").path()
}

#[test]
fn a_filter_that_refuses_or_kills_leaves_a_timer() {
    let filtered = victim::c("filtered.c");
    for answer in ["refuse", "kill"] {
        // Threads made after the filter is in force.
        let outcome = Run::profiled("rate=1000", &filtered)
            .arg(answer)
            .outcome()
            .quiet();
        assert_eq!(outcome.text(), "end\n", "{answer}");
        let recording = outcome.recording();
        let worker = recording
            .threads
            .iter()
            .find(|((_, tid, _), _)| *tid != recording.header.pid)
            .unwrap()
            .1;
        assert_eq!(
            (&worker.triggers[..], worker.refused),
            (&[Trigger::Timer][..], libc::EACCES as u32),
            "{answer}"
        );
        assert!(
            worker.delivered() >= 250,
            "{answer}: {}",
            worker.delivered()
        );
        // A program started under it.
        let run = Run::profiled("rate=1000", &filtered)
            .arg(answer)
            .arg(victim::c("burn.c"))
            .arg("300");
        let recording = run.outcome().quiet().recording();
        let burn = recording.processes.last().unwrap().key;
        let thread = recording
            .threads
            .iter()
            .find(|((key, _, _), _)| *key == burn)
            .unwrap()
            .1;
        assert_eq!(
            (&thread.triggers[..], thread.refused),
            (&[Trigger::Timer][..], libc::EACCES as u32),
            "{answer}"
        );
        assert!(
            thread.delivered() >= 250,
            "{answer}: {}",
            thread.delivered()
        );
    }
}

#[test]
fn who_asks_whether_there_is_a_strict_mode_is_sampled_on() {
    let outcome = Run::profiled("rate=1000", victim::c("filtered.c"))
        .arg("probe")
        .outcome()
        .quiet();
    assert_eq!(outcome.text(), "end\n");
    let recording = outcome.recording();
    let delivered = recording.threads.values().map(|thread| thread.delivered());
    let delivered: u64 = delivered.sum();
    assert!(delivered >= 250, "{delivered}");
}

#[test]
fn a_killing_filter_from_before_kills_who_insists_on_perf() {
    // The control: the filter does what it says, so that the timer above is our choice. One that
    // the process puts on itself is asked first.
    let program = victim::c("filtered.c");
    let insists = || Run::profiled("rate=1000,trigger=perf", &program);
    assert_eq!(insists().arg("kill").outcome().text(), "end\n");
    let outcome = insists().arg("kill").arg(&program).arg("probe").outcome();
    assert_eq!(outcome.signal(), Some(libc::SIGSYS), "{}", outcome.status);
}

#[test]
fn locked_memory_for_a_few_threads_only_leaves_timers_to_the_others() {
    let (directory, files) = for_everybody(&[library::path(), &victim::c("threads.c")]);
    let [library, program] = &files[..] else {
        unreachable!()
    };
    let _setting =
        Setting::paranoid("2").expect("this test changes a kernel setting and must run as root");
    let outcome = Run::profiled_to("rate=1000", &directory.path().join("level2.%p.rsu"), "sh")
        .args([
            "-c",
            "ulimit -l 64; exec env LD_PRELOAD=\"$0\" \"$1\" alive",
        ])
        .arg(library)
        .arg(program)
        .env("LD_PRELOAD", "")
        .with(|command| {
            command.uid(NOBODY).gid(NOBODY);
        })
        .outcome()
        .quiet();
    assert_eq!(outcome.text(), "1000 cleaned 1000\n");
    let recording = rsunwind_tests::recording::Recording::read(&only_file(directory.path(), "2"));
    let with = |trigger: Trigger| {
        recording
            .threads
            .values()
            .filter(|thread| thread.triggers.last() == Some(&trigger))
            .count()
    };
    assert_eq!(recording.threads.len(), 1001);
    assert_eq!(
        with(Trigger::PerfUser) + with(Trigger::Timer),
        1001,
        "every thread is armed"
    );
    assert!(
        with(Trigger::PerfUser) > 0 && with(Trigger::Timer) > 0,
        "{} {}",
        with(Trigger::PerfUser),
        with(Trigger::Timer)
    );
    let timers = recording
        .threads
        .values()
        .filter(|thread| thread.triggers.last() == Some(&Trigger::Timer));
    for thread in timers {
        assert_eq!(thread.refused, libc::ENOMEM as u32, "the reason is memory");
    }
}
