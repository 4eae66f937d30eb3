//! `rsunwind merge`: a system-wide `perf record` runs while programs are profiled, and its samples
//! get the stacks that the programs took of themselves. perf needs to be root for that: as another
//! user these tests say so and stop.

use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, text};
use rsunwind_tests::library;
use rsunwind_tests::statistics::judge;
use std::path::Path;
use std::process::{Command, Output};

/// Stacks that frame pointers do not find, in two threads with different work, and a kernel part.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
__attribute__((noinline)) static double inner(long n) { volatile double x = 0; for (long i = 0; i < n; i++) x += i; return x; }
__attribute__((noinline)) double in_main(int n) { double sum = 0; for (int i = 0; i < n; i++) sum += inner(20000000); return sum; }
__attribute__((noinline)) double in_worker(int n) { double sum = 0; for (int i = 0; i < n; i++) sum += inner(20000000); return sum; }
__attribute__((noinline)) long zeros(int n) {
    static char buffer[1 << 20];
    long sum = 0;
    int file = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < n; i++) sum += read(file, buffer, sizeof buffer);
    close(file);
    return sum;
}
static void *worker(void *n) { in_worker(*(int *)n); return 0; }
int main(void) {
    pthread_t thread;
    int n = 10;
    pthread_create(&thread, 0, worker, &n);
    double sum = in_main(n) + zeros(5000);
    pthread_join(thread, 0);
    return sum > 0 ? 0 : 1;
}
"#;

fn may_record_all() -> bool {
    let root = text(&output(Command::new("id").arg("-u")).stdout).trim() == "0";
    if !root {
        eprintln!("LEFT OUT: a system-wide perf record needs root");
    }
    root
}

/// perf for the whole system, while `command` runs.
fn perf(bench: &Bench, options: &[&str], command: &mut Command) -> Output {
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-a",
        "-g",
        "-e",
        "cpu-clock",
        "-F",
        "499",
        "-o",
    ])
    .arg(bench.path("perf.data"))
    .args(options)
    .arg("--")
    .arg(command.get_program())
    .args(command.get_args())
    .current_dir(bench.path(""));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => perf.env(name, value),
            None => perf.env_remove(name),
        };
    }
    output(&mut perf)
}

fn merge(bench: &Bench, recording: &Path) -> Output {
    let mut command = Command::new(rsunwind());
    command
        .args(["merge", "--only", "--roots", "thread", "-o"])
        .arg(bench.path("out.folded"));
    output(command.arg(bench.path("perf.data")).arg(recording))
}

/// The numbers of what `merge` tells, in order.
fn numbers(result: &Output) -> Vec<f64> {
    assert!(result.status.success(), "{}", text(&result.stderr));
    let told = text(&result.stderr);
    let words = told.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Checks what was merged: nearly all samples of the program have a stack of its own, verified by
/// ip, down to where the thread begins.
fn check(bench: &Bench, recording: &Path) {
    let result = merge(bench, recording);
    let [joined, ours, share, exact, same, by_time, ..] = numbers(&result)[..] else {
        panic!("{}", text(&result.stderr));
    };
    assert!(ours > 150.0, "{}", text(&result.stderr));
    assert_measured!(share >= 97.0, "{}", text(&result.stderr));
    assert_eq!((joined, by_time), (exact + same, 0.0), "verified by ip");

    let folded = std::fs::read_to_string(bench.path("out.folded")).unwrap();
    let weight = |wanted: &dyn Fn(&str) -> bool| -> u64 {
        let lines = folded
            .lines()
            .filter(|line| line.starts_with("program ") && wanted(line));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    };
    let in_main = weight(&|line| line.contains(";_start;") && line.contains(";main;in_main;inner"));
    // Without libc's debug symbols the function has no name, only what it is.
    let began = |line: &str| line.contains(";clone") || line.contains(";[thread entry];");
    let in_worker = weight(&|line| began(line) && line.contains(";worker;in_worker;inner"));
    let in_kernel = weight(&|line| line.contains(";main;zeros;") && line.contains(";vfs_read;"));
    let all = weight(&|_| true);
    assert!(
        in_main > 50 && in_worker > 50 && in_kernel > 10,
        "{in_main} {in_worker} {in_kernel}"
    );
    let mixed = weight(&|line| line.contains(";in_main;") && line.contains(";worker;"));
    assert_eq!(mixed, 0, "a thread's stack is its own");
    let known = in_main + in_worker + in_kernel;
    assert_measured!(
        known * 100 >= all * 90,
        "{known} of {all} are where the program was:\n{folded}"
    );
}

fn program(bench: &Bench) -> std::path::PathBuf {
    bench.compile(
        "gcc",
        &[
            "-O1",
            "-fomit-frame-pointer",
            "-fno-optimize-sibling-calls",
            "-pthread",
        ],
        PROGRAM,
    )
}

#[test]
fn samples_of_a_recorded_program_get_its_stacks() {
    judge(|| {
        if !may_record_all() {
            return;
        }
        for options in [&["-k", "mono"][..], &[]] {
            let bench = Bench::new();
            let program = program(&bench);
            let mut record = bench.record(&["-F", "997", "-q"]);
            let result = perf(&bench, options, record.arg(program));
            assert!(result.status.success(), "{}", text(&result.stderr));
            check(&bench, &bench.path("profile.rsu"));
        }
    });
}

/// perf looks for a part of the program's time.
#[test]
fn what_perf_did_not_see_is_not_in_it() {
    judge(|| {
        if !may_record_all() {
            return;
        }
        let bench = Bench::new();
        let program = program(&bench);
        let mut record = bench.record(&["-F", "997", "-q"]);
        let mut record = record.arg(program).spawn().unwrap();
        let result = perf(&bench, &["-k", "mono"], Command::new("sleep").arg("0.7"));
        assert!(result.status.success(), "{}", text(&result.stderr));
        assert!(record.wait().unwrap().success());
        let result = merge(&bench, &bench.path("profile.rsu"));
        assert!(result.status.success(), "{}", text(&result.stderr));
        let folded = std::fs::read_to_string(bench.path("out.folded")).unwrap();
        assert!(folded.contains(";inner "), "{folded}");
        assert!(!folded.contains("[between samples]"), "{folded}");
    });
}

#[test]
fn so_do_those_of_a_preloaded_program() {
    judge(|| {
        if !may_record_all() {
            return;
        }
        for options in [&["-k", "mono"][..], &[]] {
            let bench = Bench::new();
            let program = program(&bench);
            let recording = bench.path("own.%p.rsu");
            let mut command = Command::new(program);
            command.env("LD_PRELOAD", library::path()).env(
                "RSUNWIND",
                format!("rate=997,output={}", recording.display()),
            );
            // Only the program is to have it, not perf.
            let mut env = Command::new("env");
            for (name, value) in command.get_envs() {
                let value = value.unwrap_or_default().to_string_lossy();
                env.arg(format!("{}={value}", name.to_string_lossy()));
            }
            let result = perf(&bench, options, env.arg(command.get_program()));
            assert!(result.status.success(), "{}", text(&result.stderr));
            let entries = std::fs::read_dir(bench.path("")).unwrap().flatten();
            let mut files = entries.map(|entry| entry.path());
            let file = files.find(|path| path.extension().is_some_and(|e| e == "rsu"));
            check(&bench, &file.expect("the program's recording"));
        }
    });
}

#[test]
fn processes_and_threads_are_found_across_pid_namespaces() {
    judge(|| {
        if !may_record_all() {
            return;
        }
        let bench = Bench::new();
        let program = program(&bench);
        let record = bench.record(&["-F", "997", "-q"]);
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc"]);
        unshare
            .arg(record.get_program())
            .args(record.get_args())
            .arg(program);
        let result = perf(&bench, &["-k", "mono"], &mut unshare);
        assert!(result.status.success(), "{}", text(&result.stderr));
        let recording = bench.recording();
        let process = recording.processes.first().unwrap();
        assert!(process.pid < 100, "it has a namespace of its own");
        check(&bench, &bench.path("profile.rsu"));
    });
}

/// Reads a megabyte that is mapped anew, over and over: page faults in one function, work without
/// any in another.
const FAULTS: &str = r#"
#include <sys/mman.h>
__attribute__((noinline)) double spin(long n) { volatile double x = 0; for (long i = 0; i < n; i++) x += i; return x; }
__attribute__((noinline)) void touch(void) {
    char *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < 1 << 20; i += 4096) ((volatile char *)memory)[i] = 1;
    munmap(memory, 1 << 20);
}
__attribute__((noinline)) double again(int n) { double sum = 0; for (int i = 0; i < n; i++) { touch(); sum += spin(500000); } return sum; }
int main(void) { return again(800) > 0 ? 0 : 1; }
"#;

#[test]
fn every_event_of_perfs_is_joined_and_shown_by_its_name() {
    judge(|| {
        if !may_record_all() {
            return;
        }
        let bench = Bench::new();
        let flags = ["-O1", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"];
        let program = bench.compile("gcc", &flags, FAULTS);
        let mut record = bench.record(&["-F", "997", "-q", "-e", "page-faults"]);
        // Each 37th, not so many a second: what others of the machine fault is not in our weights.
        let faults = "page-faults/period=37,name=page-faults/";
        let options = ["-k", "mono", "-e", faults];
        let result = perf(&bench, &options, record.arg(program));
        assert!(result.status.success(), "{}", text(&result.stderr));
        check_events(&bench);
    });
}

fn check_events(bench: &Bench) {
    let folded = |event: &[&str]| {
        let mut command = Command::new(rsunwind());
        command
            .args(["merge", "--only", "--roots", "thread", "-o"])
            .arg(bench.path("out.folded"))
            .args(event);
        command.arg(bench.path("perf.data"));
        let result = output(command.arg(bench.path("profile.rsu")));
        (
            text(&result.stderr),
            std::fs::read_to_string(bench.path("out.folded")).unwrap_or_default(),
        )
    };
    let weight = |folded: &str, part: &str| -> u64 {
        let lines = folded
            .lines()
            .filter(|line| line.starts_with("program ") && line.contains(part));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    };
    let (told, time) = folded(&[]);
    assert!(weight(&time, ";main;again;spin") > 100, "{told}\n{time}");
    let (told, faults) = folded(&["--event", "page-faults"]);
    let (touching, all) = (weight(&faults, ";main;again;touch"), weight(&faults, ""));
    // A fault each page; what perf does not sample, the samples that it takes stand for.
    let true_faults = 800.0 * 256.0;
    let share = all as f64 / true_faults;
    assert_measured!(
        (0.9..1.1).contains(&share),
        "{all} faults\n{told}\n{faults}"
    );
    assert_measured!(touching * 100 >= all * 97, "{touching} of {all}\n{faults}");
    assert_eq!(weight(&faults, ";again;spin"), 0, "{faults}");
    let (told, _) = folded(&["--event", "cycles"]);
    assert!(told.contains("there are: cpu, page-faults"), "{told}");
}

#[test]
fn clocks_and_times_that_do_not_fit_are_refused_with_a_sentence() {
    if !may_record_all() {
        return;
    }
    let bench = Bench::new();
    let program = program(&bench);
    let mut record = bench.record(&["-q"]);
    let result = perf(&bench, &["-k", "CLOCK_TAI"], record.arg(&program));
    if !result.status.success() {
        let mut record = bench.record(&["-q"]);
        assert!(
            perf(&bench, &["-k", "CLOCK_BOOTTIME"], record.arg(&program))
                .status
                .success()
        );
    } else {
        let refused = merge(&bench, &bench.path("profile.rsu"));
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            text(&refused.stderr).contains("-k mono"),
            "{}",
            text(&refused.stderr)
        );
    }
    // Another run altogether, later.
    let mut later = bench.record(&["-q"]);
    assert!(
        perf(&bench, &["-k", "mono"], later.arg("true"))
            .status
            .success()
    );
    std::fs::copy(bench.path("perf.data"), bench.path("before.data")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(output(bench.record(&["-q"]).arg(&program)).status.success());
    std::fs::rename(bench.path("before.data"), bench.path("perf.data")).unwrap();
    let refused = merge(&bench, &bench.path("profile.rsu"));
    let told = text(&refused.stderr);
    assert!(
        refused.status.code() == Some(1) && told.contains("another time"),
        "{told}"
    );
}

#[test]
fn a_damaged_file_is_refused_by_its_offset() {
    let bench = Bench::new();
    let program = program(&bench);
    let mut record = bench.record(&["-q"]);
    assert!(output(record.arg(&program)).status.success());
    let whole = bench.path("whole.data");
    let mut export = Command::new(rsunwind());
    export
        .args(["export", "-o"])
        .arg(&whole)
        .arg(bench.path("profile.rsu"));
    assert!(output(&mut export).status.success());
    let bytes = std::fs::read(&whole).unwrap();
    for length in [0, 5, 50, 120, 300, bytes.len() / 2] {
        std::fs::write(bench.path("perf.data"), &bytes[..length]).unwrap();
        let refused = merge(&bench, &bench.path("profile.rsu"));
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        let what = match length {
            0 => "perf.data is empty",
            _ => "perf.data: offset 0x",
        };
        assert!(told.contains(what), "{told}");
    }
    // What we wrote ourselves is read back: every sample finds itself.
    std::fs::write(bench.path("perf.data"), &bytes).unwrap();
    let result = merge(&bench, &bench.path("profile.rsu"));
    assert!(numbers(&result)[2] > 99.0, "{}", text(&result.stderr));
}
