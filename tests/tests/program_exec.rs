//! Programs that replace themselves, or start others, while an armed event of ours may fire at any
//! moment: the event would kill the next program with SIGPROF.

use engine::wire::event::EventKind;
use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;

/// Short periods for real, whatever an event costs here.
/// By the signal that kills.
const FAST: &str = "rate=10000,cost=1,signal=prof";

fn repeat(how: &str, count: u32) -> Outcome {
    Run::profiled(FAST, victim::c("exec.c"))
        .args([how, &count.to_string()])
        .outcome()
}

#[track_caller]
fn survives(how: &str, count: u32) -> Outcome {
    let outcome = repeat(how, count);
    assert_eq!(
        (outcome.status.code(), outcome.errors().as_str()),
        (Some(7), ""),
        "{how}: {} {}",
        outcome.status,
        outcome.text()
    );
    assert!(
        outcome.text().ends_with("end\n"),
        "{how}: {}",
        outcome.text()
    );
    outcome
}

#[test]
fn an_exec_behind_our_back_is_killed_by_the_armed_event() {
    // The control: what the others would suffer if exec were not prepared for.
    let outcome = repeat("raw", 300);
    assert_eq!(outcome.signal(), Some(libc::SIGPROF), "{}", outcome.status);
}

#[test]
fn hundreds_of_execs_survive() {
    let outcome = survives("execve", 300);
    // One process all the while, and so one file; every program in it has its own record.
    let recording = outcome.recording();
    assert_eq!(recording.processes.len(), 301);
    let execs = recording
        .events
        .iter()
        .filter(|event| event.kind == EventKind::Exec);
    assert_eq!(execs.count(), 300);
}

#[test]
fn every_exec_function_survives() {
    for how in [
        "execv",
        "execvp",
        "execvpe",
        "execl",
        "execlp",
        "execle",
        "execle-many",
        "fexecve",
        "execveat",
    ] {
        let recording = survives(how, 30).recording();
        assert_eq!(recording.processes.len(), 31, "{how}: programs profiled");
    }
}

#[test]
fn an_exec_among_running_threads_survives() {
    survives("threads-execve", 60);
    survives("worker-execve", 60);
}

#[test]
fn children_started_every_way_survive_and_are_profiled() {
    for how in ["posix_spawn", "posix_spawnp", "vfork", "fork", "system"] {
        let outcome = survives(how, 30);
        let recordings = outcome.recordings();
        let programs: usize = recordings
            .iter()
            .map(|recording| recording.processes.len())
            .sum();
        assert!(programs > 30, "{how}: {programs} programs profiled");
    }
}

#[test]
fn a_failed_exec_goes_on_being_profiled() {
    for how in ["fails-execve", "fails-execlp", "fails-execv"] {
        let plain = Run::plain(victim::c("exec.c")).args([how, "1"]).outcome();
        let outcome = Run::profiled("rate=1000", victim::c("exec.c"))
            .args([how, "1"])
            .outcome();
        assert_eq!(
            (outcome.status.code(), outcome.text()),
            (Some(7), plain.text()),
            "{how}"
        );
        assert!(outcome.errors().is_empty(), "{how}: {}", outcome.errors());
        let recording = outcome.recording();
        let failed = recording
            .events
            .iter()
            .find(|event| event.kind == EventKind::ExecFailed);
        let failed = failed.unwrap_or_else(|| panic!("{how}: no event"));
        let errno = std::io::Error::from_raw_os_error(failed.value as i32).to_string();
        let said = outcome.text();
        assert!(
            errno.contains(said.trim_start_matches("-1 ").trim()),
            "{how}: {errno}, {said}"
        );
        let later = recording
            .samples()
            .filter(|sample| sample.head.time_ns > failed.time_ns);
        let later: u64 = later.map(|sample| sample.head.weight).sum();
        assert!(later >= 100, "{how}: {later} of 200 ms at 1 kHz follow");
    }
}

#[test]
fn what_a_program_ignores_the_next_one_ignores() {
    let program = victim::c("ignores.c");
    let plain = Run::plain(&program).outcome().quiet();
    assert!(plain.text().contains("27 ignored"), "{}", plain.text());
    for settings in [FAST, "rate=1000"] {
        let outcome = Run::profiled(settings, &program).outcome().quiet();
        assert_eq!(outcome.text(), plain.text(), "{settings}");
        let recording = outcome.recording();
        let delivered = recording.threads.values().map(|thread| thread.delivered());
        assert!(delivered.sum::<u64>() > 10, "{settings}");
    }
}

#[test]
fn what_a_program_has_blocked_its_children_have_blocked() {
    let program = victim::c("inherits_mask.c");
    let plain = Run::plain(&program).outcome();
    assert!(plain.text().contains("program: 1 2 3"), "{}", plain.text());
    for settings in [FAST, "rate=1000", "rate=1000,signal=prof"] {
        let outcome = Run::profiled(settings, &program).outcome();
        assert_eq!(
            (outcome.status, outcome.text()),
            (plain.status, plain.text()),
            "{settings}"
        );
    }
}
