//! Programs that live in the kernel: every one of the kernel's samples is accounted for, none is
//! lost to a full ring while there is a collector, and those of threads that live are joined with
//! the user stack of their entry.
//!
//! The victim's ways are in `tests/victims/kernel_share.c`. Samples that no user stack can come for
//! (a thread's end in the kernel, our own code) have a class of their own and are left out of the
//! shares; they are counted all the same.

use collector::correlate::KernelAccount;
use collector::recording::{KernelHalf, RawFrame, Recording};
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::recording::Recording as Records;
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim;
use std::cell::Cell;
use std::path::Path;

/// CPU time of each way that works, wall time of each that waits, ms.
const TIME: &str = "1500";

fn recorded(way: &str) -> (Recording, KernelAccount) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "1000"]);
    let result = output(command.arg(victim::c("kernel_share.c")).args([way, TIME]));
    let summary = text(&result.stderr);
    assert!(result.status.success(), "{way}: {summary}");
    let (recording, account) = (bench.recording(), bench.recording().kernel_account());
    everything_is_accounted_for(way, &bench.path("profile.rsu"), &recording, &summary);
    (recording, account)
}

/// Counted record by record, class by class, and as people are told, it is the same.
#[track_caller]
fn everything_is_accounted_for(way: &str, path: &Path, recording: &Recording, summary: &str) {
    let account = recording.kernel_account();
    let records = Records::read(path).kernel_samples;
    assert_eq!(account.recorded(), records, "{way}: {account}");
    assert!(records >= 10, "{way} does not work: {account}");
    let told = summary.lines().find_map(|line| {
        let line = line.trim_start().strip_prefix("kernel  ")?;
        Some(line.split_once(": ")?.1.to_owned())
    });
    assert_eq!(told, Some(account.to_string()), "{way}: {summary}");
}

/// None lost, and 99.9 % of what can be joined is; one may always stand apart, where there are too
/// few for that. `shielded` says whether the way calls functions of libc that hold all signals
/// back: only there may samples be joined that ip does not verify.
#[track_caller]
fn nothing_is_lost(way: &str, account: &KernelAccount, shielded: bool) {
    assert_eq!(account.lost, 0, "{way}: {account}");
    let possible = account.recorded() - account.exit - account.profiler;
    let joined = if shielded {
        account.joined()
    } else {
        account.merged + account.reused
    };
    let apart = possible - joined;
    assert_measured!(
        apart.saturating_sub(1) * 1000 <= possible,
        "{way}: {account}"
    );
}

/// That nothing is lost, and what else there is to see in the recording.
fn check(way: &str, shielded: bool, more: impl Fn(&Recording, &KernelAccount)) {
    judge(|| {
        let (recording, account) = recorded(way);
        nothing_is_lost(way, &account, shielded);
        more(&recording, &account);
    });
}

fn no_more(_: &Recording, _: &KernelAccount) {}

/// Weight of the samples that were taken in the kernel, as a share of all.
fn kernel_share(recording: &Recording) -> f64 {
    let weight = |kernel: bool| -> u64 {
        let wanted = |half: KernelHalf| !kernel || half != KernelHalf::None;
        let samples = recording.samples.iter().filter(|s| wanted(s.kernel));
        samples.map(|sample| sample.weight).sum()
    };
    weight(true) as f64 / weight(false) as f64
}

/// Joined samples have frames of both sides, and those of the kernel lie within those of the user.
fn both_halves_are_there(recording: &Recording) {
    let joined = |half: KernelHalf| half != KernelHalf::None && !half.is_alone();
    for sample in recording.samples.iter().filter(|s| joined(s.kernel)) {
        let is_kernel: Vec<bool> = recording
            .walk(sample.stack)
            .map(|frame| matches!(frame, RawFrame::Kernel(_)))
            .collect();
        let frames = is_kernel.iter().take_while(|kernel| **kernel).count();
        assert!(frames > 0 && frames < is_kernel.len(), "{is_kernel:?}");
        assert!(!is_kernel[frames..].contains(&true), "{is_kernel:?}");
    }
}

#[test]
fn long_reads() {
    for (way, shielded) in [("read", true), ("read-raw", false)] {
        check(way, shielded, |recording, _| {
            assert_measured!(kernel_share(recording) > 0.95, "{way}");
            both_halves_are_there(recording);
        });
    }
}

#[test]
fn one_user_stack_serves_all_samples_of_a_long_call() {
    check("populate", false, |recording, account| {
        assert_measured!(kernel_share(recording) > 0.95, "{account}");
        assert!(account.merged * 10 < account.reused, "{account}");
        both_halves_are_there(recording);
    });
}

#[test]
fn page_faults() {
    check("faults", false, |recording, _| {
        both_halves_are_there(recording);
    });
}

#[test]
fn files() {
    check("fsync", true, no_more);
    check("sendfile", true, no_more);
}

#[test]
fn waiting() {
    check("futex", true, no_more);
    check("poll", true, no_more);
    check("nanosleep", true, no_more);
}

#[test]
fn threads_that_end() {
    check("threads", true, no_more);
    check("exit", false, no_more);
}

#[test]
fn signals_of_the_program_itself() {
    // Returning from its handlers it is in the kernel, too, where ip is still the handler's.
    check("signals", true, no_more);
}

#[test]
fn without_a_collector_what_finds_no_room_is_counted() {
    judge(|| {
        // More samples in each call than a ring has room for.
        let outcome = Run::profiled("rate=4000,cost=1", victim::c("kernel_share.c"))
            .args(["populate", TIME])
            .outcome()
            .quiet();
        let recording = collector::correlate::read(&outcome.files()).expect("a recording");
        let account = recording.kernel_account();
        assert!(account.lost > 0, "{account}");
        assert_eq!(account.recorded(), outcome.recording().kernel_samples);
        let thread = &recording.threads[0];
        let weight: u64 = recording.samples.iter().map(|sample| sample.weight).sum();
        let (used, period_ns) = (thread.cpu_ns() as f64, thread.armings[0].period_ns);
        let delivered = (weight * period_ns) as f64;
        assert_measured!(
            stands_for(delivered, used, used * 0.02),
            "{delivered} of {used} ns: {account}"
        );
    });
}

/// A thread whose first call makes memory of so many MiB, and which lives until it has used so many
/// times what that took.
const LONG_FIRST_CALL: &str = "
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static double used(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}
static char **given;
static void *begins(void *unused) {
    size_t size = strtoul(given[1], 0, 10) << 20;
    mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    for (double until = atof(given[2]) * used(); used() < until;) ;
    return unused;
}
int main(int count, char **arguments) {
    pthread_t thread;
    given = arguments;
    return count != 3 || pthread_create(&thread, 0, begins, 0) || pthread_join(thread, 0);
}";

/// What found no room is counted though the thread, after that call, ends or gets a larger ring.
fn what_found_no_room_is_counted(times: &str) {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1", "-pthread"], LONG_FIRST_CALL);
    let mebibytes = Cell::new(512);
    judge(|| {
        let (recording, account) = loop {
            let mut record = bench.record(&["-q", "-F", "4000"]);
            let size = mebibytes.get().to_string();
            let result = output(record.arg(&program).args([&size, times]));
            assert!(result.status.success(), "{}", text(&result.stderr));
            let (recording, account) = (bench.recording(), bench.recording().kernel_account());
            // How long a call must take for a ring to be full is known, how fast memory is made
            // here is not.
            if account.lost > 0 || mebibytes.get() == 4096 {
                break (recording, account);
            }
            mebibytes.set(mebibytes.get() * 2);
        };
        let threads = recording.threads.iter();
        let thread = threads.max_by_key(|thread| thread.cpu_ns()).expect("one");
        assert!(account.lost > 0, "{account}");
        let (used, period_ns) = (thread.cpu_ns() as f64, thread.armings[0].period_ns);
        let counted = ((account.recorded() + account.lost) * period_ns) as f64;
        assert_measured!(
            stands_for(counted, used, used * 0.2),
            "{counted} of {used} ns: {account}"
        );
    });
}

#[test]
fn what_finds_no_room_is_counted_though_a_larger_ring_takes_its_place() {
    what_found_no_room_is_counted("1.1");
}

#[test]
fn what_finds_no_room_is_counted_though_the_thread_ends() {
    what_found_no_room_is_counted("1");
}

/// Records for two seconds and tells the program to end; its last calls never came back.
fn cut_off(way: &str) -> (Recording, KernelAccount) {
    cut_off_from(way, "100000")
}

fn cut_off_from(way: &str, time: &str) -> (Recording, KernelAccount) {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "4000", "-d", "2s"]);
    let program = victim::c("kernel_share.c");
    let result = output(command.arg(program).args([way, time]));
    let summary = text(&result.stderr);
    assert!(result.status.success(), "{way}: {summary}");
    let recording = bench.recording();
    everything_is_accounted_for(way, &bench.path("profile.rsu"), &recording, &summary);
    let account = recording.kernel_account();
    assert_eq!(account.lost, 0, "{way}: {account}");
    (recording, account)
}

#[test]
fn threads_that_sleep_when_recording_ends_have_their_stacks() {
    judge(|| {
        let (recording, account) = cut_off("asleep");
        assert_measured!(
            account.orphan + account.late <= 1,
            "one may always stand apart: {account}"
        );
        both_halves_are_there(&recording);
    });
}

#[test]
fn threads_that_work_in_the_kernel_when_recording_ends_have_their_stacks() {
    for way in ["populate", "read-raw"] {
        judge(|| {
            let (recording, account) = cut_off(way);
            let apart = account.orphan + account.late + account.exit;
            assert_measured!(apart <= 1, "one may always stand apart: {way}: {account}");
            both_halves_are_there(&recording);
        });
    }
}

#[test]
fn nothing_is_lost_of_a_program_that_goes_on_in_the_kernel_when_recording_ends() {
    judge(|| {
        let (recording, _) = cut_off_from("stubborn", "4000");
        both_halves_are_there(&recording);
    });
}
