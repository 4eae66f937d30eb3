//! What an event costs is measured once, not by each program that is started; and a period is never
//! so short that samples take more than a quarter of it. What events and the collector cost is said
//! when recording ends.

use collector::recording::{Arming, KernelHalf, Recording};
use engine::wire::sample::Trigger;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, shell, text};
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::traced::{self, Step, Trace};
use std::path::Path;

/// Five programs one after another, two of them of a second generation.
const TREE: &str = "/bin/true; sh -c '/bin/true; exec /bin/true'; exec /bin/true";

/// Events opened for the measurement, by the thread that opened them.
fn measurements(trace: &Path) -> Vec<u32> {
    let period = format!("sample_period={},", engine::affordable::TRIAL_PERIOD_NS);
    let is_one = |step: &Step| matches!(step, Step::Call(name, arguments) if name == "perf_event_open" && arguments.contains(&period) && !arguments.contains("= -1"));
    let all = Trace::read(trace).threads;
    let opened = all
        .iter()
        .flat_map(|(tid, steps)| steps.iter().filter(|step| is_one(step)).map(|_| *tid));
    opened.collect()
}

#[test]
fn without_a_collector_the_first_program_tells_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let outcome = Run::profiled("rate=5000", "/bin/sh")
        .args(["-c", TREE])
        .with(|command| traced::trace(command, &trace))
        .outcome()
        .quiet();
    assert!(outcome.files().len() >= 4, "{:?}", outcome.files());
    assert_eq!(measurements(&trace).len(), 1);
    // All have the same period, whatever it is.
    let mut periods: Vec<u64> = outcome
        .recordings()
        .iter()
        .flat_map(|recording| recording.processes.iter().map(|process| process.period_ns))
        .collect();
    periods.dedup();
    assert_eq!(periods.len(), 1, "{periods:?}");
}

#[test]
fn settings_that_the_program_changes_for_another_are_left_alone() {
    let outcome = Run::profiled("rate=5000", "/bin/sh")
        .args(["-c", "RSUNWIND=${RSUNWIND},rate=99 /bin/true; :"])
        .outcome()
        .quiet();
    let asked = |asked_ns: u64| {
        let recordings = outcome.recordings();
        let all = recordings.iter().flat_map(|recording| &recording.processes);
        all.filter(|process| process.asked_period_ns == asked_ns)
            .count()
    };
    assert_eq!((asked(200_000), asked(10_101_010)), (1, 1));
}

#[test]
fn with_a_collector_no_program_measures() {
    let bench = Bench::new();
    let trace = bench.path("trace");
    let mut command = bench.record(&["-F", "5000"]);
    command.arg(shell(TREE, [""; 0]).get_program());
    command.args(["-c", TREE]);
    traced::trace(&mut command, &trace);
    command.current_dir(bench.path(""));
    assert_eq!(rsunwind_tests::command::status(&mut command), 0);
    let measured = measurements(&trace);
    let recording = bench.recording();
    let programs: Vec<u32> = recording.processes.iter().map(|run| run.pid).collect();
    assert!(programs.len() >= 4, "{programs:?}");
    assert!(!measured.is_empty(), "the collector does");
    assert!(
        measured.iter().all(|tid| !programs.contains(tid)),
        "{measured:?} of {programs:?}"
    );
}

#[test]
fn low_rates_and_timers_are_not_measured_at_all() {
    for settings in ["rate=999", "rate=5000,trigger=timer", "rate=5000,cost=9"] {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("trace");
        let outcome = Run::profiled(settings, "/bin/true")
            .with(|command| traced::trace(command, &trace))
            .outcome();
        assert!(outcome.quiet().files().len() == 1);
        assert_eq!(measurements(&trace).len(), 0, "{settings}");
    }
}

/// Waits a hundred and fifty times, and computes for fifty milliseconds.
const WAITS: &str = "select undef, undef, undef, 0.0005 for 1..150; 1 while (times)[0] < 0.05";

#[test]
fn what_was_taken_beside_the_program_s_own_clocks_is_said() {
    let bench = Bench::new();
    let mut command = bench.record(&[]);
    let said = text(&output(command.args(["perl", "-e", WAITS])).stderr);
    let recording = bench.recording();
    let session = recording.session.as_ref().expect("it was ended");
    assert!(session.switches >= 150, "{}", session.switches);
    assert!(session.collector_ns > 0);
    assert!(
        said.contains(": rsunwind itself, which recorded it"),
        "{said}"
    );
    let has_events = |trigger| matches!(trigger, Trigger::PerfKernel | Trigger::PerfUser);
    let has_events = recording
        .threads
        .iter()
        .any(|thread| has_events(thread.trigger()));
    let price = session.event_ns + session.switch_ns + session.thread_ns;
    let estimate = said.lines().find(|line| line.contains("besides, some"));
    assert_eq!(estimate.is_some(), has_events && price > 0, "{said}");
    let switches = format!("{} context switches at ", session.switches);
    let says_switches = estimate.is_some_and(|line| line.contains(&switches));
    assert_eq!(says_switches, has_events && session.switch_ns > 0, "{said}");
}

/// Half a second of CPU time, and as much work as that is on most machines (where interrupts take
/// nearly all of it, the work takes longer), five parts of seven in the kernel on any machine, the
/// others in user mode, where alone it is seen what an event costs; with as few descriptors as it
/// is told.
const IN_THE_KERNEL: &str = "
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
static volatile unsigned long sink;
static long now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}
int main(int count, char **arguments) {
    struct timespec time;
    struct rlimit few = {count > 1 ? atoi(arguments[1]) : 0, 1000};
    if (count > 1) setrlimit(RLIMIT_NOFILE, &few);
    int turns = 0;
    do {
        long began = now_ns();
        void *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        munmap(memory, 1 << 20);
        long back = now_ns(), end = back + (back - began) * 2 / 5;
        do for (int i = 0; i < 1000; i++) sink += i;
        while (now_ns() < end);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    } while (++turns < 1000 || (time.tv_sec == 0 && time.tv_nsec < 500000000));
    return 0;
}";

/// So many periods are the one that the settings below ask for, as they say what samples may take.
const ASKED: u64 = 16;

#[test]
fn samples_that_take_more_than_they_may_come_less_often_and_stand_for_more() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1"], IN_THE_KERNEL);
    judge(|| {
        // What an event costs here is seen, whatever the settings say.
        let outcome = Run::profiled("rate=4000,overhead=0.5,cost=1", &program)
            .outcome()
            .quiet();
        let recording = collector::correlate::read(&outcome.files()).expect("a recording");
        let thread = &recording.threads[0];
        let armings = &thread.armings;
        let paces: Vec<u64> = armings.iter().map(|arming| arming.periods).collect();
        assert_eq!(paces.first(), Some(&ASKED));
        assert_measured!(
            paces.last() > Some(&(4 * ASKED)),
            "{paces:?} in {} samples, {} ns",
            recording.samples.len(),
            thread.cpu_ns()
        );
        let weight = |wanted: fn(KernelHalf) -> bool| -> f64 {
            let samples = recording.samples.iter().filter(|s| wanted(s.kernel));
            samples.map(|sample| sample.weight as f64).sum()
        };
        let (all, used) = (weight(|_| true), thread.cpu_ns() as f64);
        let delivered = all * armings[0].period_ns as f64;
        let period_ns = (armings[0].period_ns * paces.last().unwrap_or(&1)) as f64;
        assert_measured!(
            stands_for(delivered, used, used * 0.02 + period_ns),
            "{delivered} of {used} ns"
        );
        // One of the kernel's stands for as many periods as one of user mode.
        let share = weight(|half| half != KernelHalf::None) / all;
        assert_measured!(share > 0.5, "{share}: {paces:?}");
    });
}

/// Records a program that believes at first that an event costs nothing, and finds out; gives its
/// thread's number, too.
fn paced(bench: &Bench, program: &Path, descriptors: &str) -> (Recording, usize) {
    const ENTER: &str = "RSUNWIND=$RSUNWIND,rate=4000,overhead=0.5,cost=1 exec \"$@\"";
    let mut record = bench.record(&["-q"]);
    record.args(["sh", "-c", ENTER, "sh"]).arg(program);
    let result = output(record.arg(descriptors));
    assert!(result.status.success(), "{}", text(&result.stderr));
    let recording = bench.recording();
    let threads = recording.threads.iter().enumerate();
    let longest = threads.max_by_key(|(_, thread)| thread.cpu_ns());
    let at = longest.expect("a thread").0;
    (recording, at)
}

#[test]
fn what_an_event_takes_that_another_has_replaced_is_in_no_sample() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1"], IN_THE_KERNEL);
    judge(|| {
        let (recording, at) = paced(&bench, &program, "1000");
        let thread = &recording.threads[at];
        let last = thread.armings.last().expect("it was armed");
        assert_measured!(last.periods > 4 * ASKED, "{:?}", thread.armings);
        // The collector holds the event before for a while.
        let since = recording.samples.iter().filter(|sample| {
            let is_of_kernel = sample.kernel != KernelHalf::None;
            (sample.thread.index(), is_of_kernel) == (at, true) && sample.time_ns > last.time_ns
        });
        let since = since.count() as f64;
        let most = thread.cpu_ns() as f64 / (last.period_ns * last.periods) as f64;
        assert_measured!(since < most * 1.3 + 8.0, "{since}, {most} at most");
    });
}

#[test]
fn what_the_preparation_of_fork_children_took_is_in_the_cost() {
    /// Each is armed with a timer and an event.
    const EACH_NS: u64 = 5_000;
    const CHILDREN: u64 = 100;
    let arming_ns = |children: u64| {
        let bench = Bench::new();
        let script = format!("i=0; while [ $i -lt {children} ]; do (exit 0); i=$((i+1)); done");
        let result = output(bench.record(&[]).args(["sh", "-c", &script]));
        assert!(result.status.success(), "{}", text(&result.stderr));
        let threads = bench.recording().threads;
        let all = threads.iter().map(|thread| thread.totals.arming_ns);
        all.sum::<u64>()
    };
    let (few, many) = (arming_ns(1), arming_ns(1 + CHILDREN));
    assert!(many > few + CHILDREN * EACH_NS, "{few} and {many} ns");
}

#[test]
fn a_thread_that_can_have_no_other_event_keeps_its_own() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1"], IN_THE_KERNEL);
    let (recording, at) = paced(&bench, &program, "3");
    let armings = &recording.threads[at].armings;
    let kept = |arming: &Arming| (arming.trigger, arming.periods) == (Trigger::PerfKernel, ASKED);
    assert!(armings.iter().all(kept), "{armings:?}");
}

/// Two threads that wake each other in turns, for a second of CPU time.
const TURNS: &str = r"
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static int there[2], back[2];
static void *answer(void *x) {
    char byte;
    while (read(there[0], &byte, 1) == 1) if (write(back[1], &byte, 1) != 1) break;
    return x;
}
int main(void) {
    pthread_t other;
    struct timespec time;
    char byte = 0;
    if (pipe(there) || pipe(back) || pthread_create(&other, 0, answer, 0)) return 1;
    do {
        for (int i = 0; i < 100; i++) if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    } while (time.tv_sec == 0);
    close(there[1]);
    return pthread_join(other, 0);
}";

/// What sampled each thread, one after the other: `e` an event, `t` a timer. Their weights are what
/// they have used.
fn triggers(recording: &Recording) -> Vec<String> {
    let kinds = recording.threads.iter().enumerate().map(|(at, thread)| {
        let samples = recording.samples.iter();
        let own = samples.filter(|sample| sample.thread.index() == at);
        let weight: u64 = own.map(|sample| sample.weight).sum();
        let armings = &thread.armings;
        let (told, used) = (weight * armings[0].period_ns, thread.cpu_ns());
        let used = used - thread.unarmed_cpu_ns().min(used);
        let longest = armings.iter().map(|arming| arming.periods).max().unwrap();
        let allowed = used / 50 + 2 * armings[0].period_ns * longest;
        assert!(told.abs_diff(used) <= allowed, "{told} of {used} ns");
        let mut kinds: Vec<bool> = armings.iter().map(Arming::has_event).collect();
        kinds.dedup();
        let letters = kinds
            .iter()
            .map(|has_event| if *has_event { 'e' } else { 't' });
        letters.collect()
    });
    kinds.collect()
}

#[test]
fn a_thread_whose_switches_alone_are_too_expensive_has_a_timer() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1", "-pthread"], TURNS);
    let by_itself = |settings: &str| {
        let run = Run::profiled(&format!("rate=999,{settings}"), &program);
        let outcome = run.outcome().quiet();
        triggers(&collector::correlate::read(&outcome.files()).unwrap())
    };
    let with_a_collector = |settings: &str| {
        let bench = Bench::new();
        let enter = format!("RSUNWIND=$RSUNWIND,{settings} exec \"$@\"");
        let mut record = bench.record(&["-q"]);
        let result = output(record.args(["sh", "-c", &enter, "sh"]).arg(&program));
        assert!(result.status.success(), "{}", text(&result.stderr));
        triggers(&bench.recording())
    };
    for by_a_collector in [false, true] {
        let settings = |overhead: &str, switch: &str| {
            let settings = format!("overhead={overhead},cost=1000,switch={switch}");
            match by_a_collector {
                true => with_a_collector(&settings),
                false => by_itself(&settings),
            }
        };
        let none = settings("0.5", "0");
        assert!(none.iter().all(|kinds| kinds == "e"), "{none:?}");
        let many = settings("0.5", "100000");
        let spared = many.iter().filter(|kinds| *kinds == "et");
        assert_eq!(spared.count(), 2, "{many:?}");
        // A share that pays for it soon.
        let some = settings("20", "100000");
        assert!(
            some.iter().any(|kinds| kinds.starts_with("ete")),
            "{some:?}"
        );
        let unsaid = settings("25", "100000");
        assert!(unsaid.iter().all(|kinds| kinds == "e"), "{unsaid:?}");
    }
}
