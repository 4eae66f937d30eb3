//! Perf rings that the collector empties: what it is and does can harm no program, and it sleeps
//! while it waits.

use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, sleeps, text, wait_for};
use rsunwind_tests::statistics::judge;
use rsunwind_tests::victim;
use std::fs;
use std::process::{Command, Stdio};

/// Replaces itself by exec so many times, each time after a few milliseconds of work, then writes a
/// file and exits with status 7.
const CHAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **arguments) {
  int left = atoi(arguments[1]);
  for (clock_t end = clock() + CLOCKS_PER_SEC / 100; clock() < end;) {}
  if (left == 0) { fclose(fopen(arguments[2], "w")); return 7; }
  char number[16];
  sprintf(number, "%d", left - 1);
  execl("/no/such/program", "none", NULL);
  execl(arguments[0], arguments[0], number, arguments[2], NULL);
  return 1;
}"#;

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

#[test]
fn programs_go_on_and_replace_themselves_while_the_collector_stands_still() {
    let bench = Bench::new();
    let (program, marker) = (bench.compile("gcc", &["-O1"], CHAIN), bench.path("over"));
    let mut command = bench.record(&["-q", "-F", "10k"]);
    command.arg(program).arg("60").arg(&marker);
    let mut record = command
        .stdin(Stdio::null())
        .spawn()
        .expect("rsunwind starts");
    wait_for("the first program run", || {
        fs::metadata(bench.path("profile.rsu"))
            .ok()
            .filter(|file| file.len() > 0)
    });
    signal("-STOP", record.id());
    wait_for("the last program run", || fs::metadata(&marker).ok());
    signal("-CONT", record.id());
    let status = record.wait().expect("it ends");
    assert_eq!(status.code(), Some(7));
    assert_eq!(bench.recording().processes.len(), 61);
}

#[test]
fn programs_replace_themselves_under_a_collector_that_holds_their_events() {
    let bench = Bench::new();
    let (program, marker) = (bench.compile("gcc", &["-O1"], CHAIN), bench.path("over"));
    let mut command = bench.record(&["-q", "-F", "10k"]);
    let result = output(command.arg(program).arg("200").arg(&marker));
    assert_eq!(result.status.code(), Some(7), "{}", text(&result.stderr));
    let recording = bench.recording();
    assert_eq!(recording.processes.len(), 201);
    assert_eq!(recording.kernel_account().lost, 0);
}

/// CPU time that a process has used, ns.
fn cpu_time(pid: u32) -> u64 {
    let line = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("it lives");
    let first = line.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).expect("ns")
}

/// Whether a process stands still.
fn is_stopped(pid: u32) -> bool {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let state = line.rsplit_once(") ").expect("a name").1;
    state.starts_with('T')
}

#[test]
fn what_finds_a_full_ring_is_counted_also_if_nothing_comes_after_it() {
    judge(a_ring_is_full_at_the_end);
}

fn a_ring_is_full_at_the_end() {
    let bench = Bench::new();
    let mut command = bench.record(&["-q", "-F", "2k"]);
    command
        .arg(victim::c("kernel_share.c"))
        .args(["read-raw", "60000"]);
    let mut record = command
        .stdin(Stdio::null())
        .spawn()
        .expect("rsunwind starts");
    let children = format!("/proc/{0}/task/{0}/children", record.id());
    let program: u32 = wait_for("the program", || {
        let children = fs::read_to_string(&children).ok()?;
        let pids = children.split_whitespace();
        pids.map(|pid| pid.parse().expect("a pid"))
            .find(|pid| cpu_time(*pid) > 300_000_000)
    });
    signal("-STOP", record.id());
    // Two thousand samples a second; the ring has room for some two thousand.
    wait_for("the ring to fill", || {
        (cpu_time(program) > 4_000_000_000).then_some(())
    });
    // On a busy machine it would go on for a while after a look at its clock.
    signal("-STOP", program);
    wait_for("it to stop", || is_stopped(program).then_some(()));
    let used = cpu_time(program);
    signal("-KILL", program);
    signal("-CONT", record.id());
    assert_eq!(record.wait().expect("it ends").code(), Some(128 + 9));
    let account = bench.recording().kernel_account();
    let periods = used as f64 / 5e5;
    let counted = (account.recorded() + account.lost) as f64;
    assert!(account.lost > 1000, "{account:?}");
    assert_measured!(
        (0.95..1.05).contains(&(counted / periods)),
        "{account:?} of {periods}"
    );
}

#[test]
fn it_wakes_up_twenty_times_a_second_at_most() {
    let bench = Bench::new();
    let mut command = bench.record(&["-q", "-F", "1000"]);
    command
        .arg(victim::c("kernel_share.c"))
        .args(["read-raw", "60000"]);
    let mut record = command
        .stdin(Stdio::null())
        .spawn()
        .expect("rsunwind starts");
    let second = std::time::Duration::from_secs(1);
    std::thread::sleep(second);
    let before = sleeps(record.id());
    let began = std::time::Instant::now();
    std::thread::sleep(4 * second);
    let slept = sleeps(record.id()) - before;
    let most = began.elapsed().as_secs_f64() * 20.0;
    // How much seldomer than that is the machine's affair; once a second at the least it is looked
    // around.
    assert!(
        slept >= 4 && (slept as f64) < most,
        "{slept} times in {:?}",
        began.elapsed()
    );
    signal("-TERM", record.id());
    assert_eq!(record.wait().expect("it ends").code(), Some(128 + 15));
    assert_eq!(bench.recording().kernel_account().lost, 0);
}

#[test]
fn every_way_to_start_a_program_is_safe_while_the_collector_holds_events() {
    for how in [
        "execve",
        "threads-execve",
        "worker-execve",
        "posix_spawn",
        "vfork",
        "fork",
    ] {
        let bench = Bench::new();
        let mut command = bench.record(&["-q", "-F", "10k"]);
        let result = output(command.arg(victim::c("exec.c")).args([how, "30"]));
        let (out, errors) = (text(&result.stdout), text(&result.stderr));
        assert_eq!(result.status.code(), Some(7), "{how}: {errors}");
        assert!(out.ends_with("end\n"), "{how}: {out}");
        assert!(bench.recording().processes.len() > 30, "{how}");
    }
}
