//! Events beside CPU time: `record -e`, and what the other commands make of it.

use engine::wire::offer::CPU_EVENT;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, rsunwind, text};
use rsunwind_tests::statistics::{judge, stands_for};
use rsunwind_tests::victim;
use std::path::Path;
use std::process::Command;

/// Enough that the last period, which does not come to its end, is a small part of them. The kernel
/// chooses periods by the time between the first faults, and may begin with one of 40,000.
const PAGES: u64 = 400_000;

/// The number of functions in a report of an event, and its heading's amount.
fn report(recording: &Path, event: &str) -> (u64, Vec<(u64, String)>) {
    let mut command = Command::new(rsunwind());
    command
        .arg("report")
        .arg(recording)
        .args(["--no-pager", "--event", event]);
    let output = output(&mut command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let text = text(&output.stdout);
    let heading = text
        .lines()
        .find(|line| line.contains(&format!(" of {event} in ")))
        .expect(&text);
    let amount = heading.split(' ').next().unwrap().parse().unwrap();
    let rows = text
        .lines()
        .skip_while(|line| !line.contains("SELF"))
        .skip(1);
    let rows = rows.filter_map(|row| {
        let words: Vec<&str> = row.split_whitespace().collect();
        Some((words.first()?.parse().ok()?, (*words.last()?).to_owned()))
    });
    (amount, rows.collect())
}

fn own(rows: &[(u64, String)], function: &str) -> u64 {
    rows.iter()
        .filter(|(_, name)| name == function)
        .map(|(own, _)| own)
        .sum()
}

#[test]
fn page_faults_are_counted_where_they_happen() {
    judge(|| {
        let (bench, program) = (Bench::new(), victim::c("faults.c"));
        for events in [
            "page-faults",
            "page-faults,minor-faults:u",
            "page-faults:u,page-faults",
        ] {
            let mut record = bench.record(&["-q", "-e", events]);
            let ran = output(record.arg(&program).arg(PAGES.to_string()));
            assert!(ran.status.success(), "{}", text(&ran.stderr));
            let (all, rows) = report(&bench.path("profile.rsu"), "page-faults");
            let touched = own(&rows, "toucher");
            // Those of our own memory have a row to themselves.
            let ours = own(&rows, "[rsunwind]");
            // A sample stands for what was counted since the one before: up to a thousand or two,
            // some of which may be of our own. What comes behind the last is in none.
            let (least, most) = (PAGES * 90 / 100, PAGES + 400);
            assert_measured!(
                touched + ours > least && touched < most && touched > PAGES * 85 / 100,
                "{events}: {touched} of {all} in {rows:?}"
            );
            // Of the rest some are the loader's.
            assert!(all - touched - ours < 400, "{events}: {rows:?}");
            // CPU time is what it would be without: none of it is the faults'.
            let recording = bench.recording();
            let cpu_ns: u64 = recording
                .threads
                .iter()
                .map(collector::recording::Thread::cpu_ns)
                .sum();
            let weight: u64 = recording.samples.iter().map(|sample| sample.weight).sum();
            let sampled = weight as f64 * 1e9 / 999.0;
            assert_measured!(
                stands_for(sampled, cpu_ns as f64, cpu_ns as f64 * 0.1),
                "{sampled} of {cpu_ns}"
            );
        }
    });
}

#[test]
fn a_period_of_one_s_own_is_kept_to() {
    let (bench, program) = (Bench::new(), victim::c("faults.c"));
    let mut record = bench.record(&["-q", "-e", "page-faults/period=100/:u"]);
    let ran = output(record.arg(&program).arg(PAGES.to_string()));
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let (all, _) = report(&bench.path("profile.rsu"), "page-faults:u");
    let recording = bench.recording();
    let faults = recording
        .samples
        .iter()
        .filter(|sample| sample.event != CPU_EVENT);
    let values: Vec<u64> = faults.map(|sample| sample.value).collect();
    assert_eq!(values.iter().sum::<u64>(), all);
    assert!(all > PAGES - 100 && all < PAGES + 400, "{all}");
    assert!(values.iter().all(|value| *value == 100), "{values:?}");
    let rest = recording.sources[0].rest;
    assert!(rest < 100 * recording.threads.len() as u64, "{rest}");
}

#[test]
fn what_comes_behind_the_last_sample_is_said() {
    let (bench, program) = (Bench::new(), victim::c("faults.c"));
    let mut record = bench.record(&["-e", "page-faults/period=300000/:u"]);
    let ran = output(record.arg(&program).arg(PAGES.to_string()));
    let summary = text(&ran.stderr);
    assert!(ran.status.success(), "{summary}");
    let recording = bench.recording();
    let rest = recording.sources[0].rest;
    let expected = PAGES - 300_000;
    assert!((expected..expected + 1000).contains(&rest), "{rest}");
    let said = format!(
        "page-faults:u: 300000 in 1 sample; {rest} more behind the last samples of threads, in none"
    );
    assert!(summary.contains(&said), "{summary}");
}

#[test]
fn each_event_has_a_column_in_pprof_and_a_line_in_the_summary() {
    let (bench, program) = (Bench::new(), victim::c("faults.c"));
    let mut record = bench.record(&["-e", "page-faults,context-switches"]);
    let ran = output(record.arg(&program).arg(PAGES.to_string()));
    let summary = text(&ran.stderr);
    for event in ["page-faults: ", "context-switches: "] {
        assert!(summary.contains(&format!("event  {event}")), "{summary}");
    }
    let export = |arguments: &[&str]| {
        let mut command = Command::new(rsunwind());
        command
            .current_dir(bench.path(""))
            .args(["export", "profile.rsu", "-o"])
            .args(arguments);
        let output = output(&mut command);
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    export(&["out.pb"]);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(bench.path("out.pb")).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    for name in ["cpu", "page-faults", "context-switches"] {
        let found = bytes
            .windows(name.len())
            .any(|part| part == name.as_bytes());
        assert!(found, "{name} is no column");
    }
    export(&["out.folded", "--event", "page-faults"]);
    let folded = std::fs::read_to_string(bench.path("out.folded")).unwrap();
    let touched: u64 = folded
        .lines()
        .filter(|line| line.contains(";toucher "))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    // Of CPU time there are some hundred periods. How many faults fall to whom is asked above.
    assert!(touched > PAGES / 2, "{folded}");
}

#[test]
fn samples_that_find_no_room_are_counted_with_their_event() {
    let source = "#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
static long sleeps(int pid) {
  char line[200];
  long count = -1;
  snprintf(line, sizeof line, \"/proc/%d/status\", pid);
  FILE *status = fopen(line, \"r\");
  while (count < 0 && fgets(line, sizeof line, status)) sscanf(line, \"voluntary_ctxt_switches: %ld\", &count);
  fclose(status);
  return count;
}
int main(void) {
  // Between two of its sleeps rsunwind takes the ring that is offered.
  long before = sleeps(getppid());
  while (sleeps(getppid()) < before + 5) usleep(10000);
  kill(getppid(), SIGSTOP);
  for (int i = 0; i < 20000; i++) nanosleep(&(struct timespec){0, 1000}, NULL);
  kill(getppid(), SIGCONT);
  struct rusage used;
  getrusage(RUSAGE_THREAD, &used);
  printf(\"%ld\\n\", used.ru_nvcsw + used.ru_nivcsw);
  return 0;
}";
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1", "-w"], source);
    let mut record = bench.record(&["-e", "context-switches"]);
    let ran = output(record.arg(program));
    let summary = text(&ran.stderr);
    assert!(ran.status.success(), "{summary}");
    let truth: u64 = text(&ran.stdout).trim().parse().unwrap();
    let recording = bench.recording();
    let switches = &recording.sources[0];
    let counted = recording.samples.iter();
    let counted = counted
        .filter(|sample| sample.event == switches.event)
        .count() as u64;
    // rsunwind was stopped while they came: a ring holds a few thousand.
    assert!(switches.lost > 5_000, "{summary}");
    assert!(
        summary.contains(&format!(
            "{} more samples found a perf ring full",
            switches.lost
        )),
        "{summary}"
    );
    let all = counted + switches.lost;
    // Some were taken before the event was there, and some after the program looked.
    assert!(
        all <= truth + 20 && all + 1000 > truth,
        "{counted} and {} of {truth}",
        switches.lost
    );
    let lost = recording.kernel_account().lost;
    assert!(lost < 1000, "{lost} of CPU time");
}

#[test]
fn tracepoints_show_who_made_the_call() {
    // Where no file system shows the tracepoints, it is mounted for this test alone.
    let bench = Bench::new();
    let program = victim::c("faults.c");
    let mut command = Command::new("unshare");
    let script =
        "[ -d /sys/kernel/tracing/events ] || mount -t tracefs nodev /sys/kernel/tracing || exit 77
                  exec \"$@\"";
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(rsunwind());
    command.args(["record", "-q", "-e", "syscalls:sys_enter_getppid", "-o"]);
    command
        .arg(bench.path("profile.rsu"))
        .arg("--")
        .arg(&program)
        .args(["10", "300"]);
    let ran = output(&mut command);
    if ran.status.code() == Some(77) {
        eprintln!("tracefs cannot be mounted here: {}", text(&ran.stderr));
        return;
    }
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let (all, rows) = report(&bench.path("profile.rsu"), "syscalls:sys_enter_getppid");
    // As many as fit into the ring at once, since the collector looks only now and then. Ours asks
    // once or twice for its parent, too.
    assert!((300..=305).contains(&all), "{all}: {rows:?}");
    let shown = Command::new(rsunwind())
        .arg("export")
        .arg(bench.path("profile.rsu"))
        .args([
            "-o",
            "-",
            "-f",
            "folded",
            "--event",
            "syscalls:sys_enter_getppid",
        ])
        .output()
        .unwrap();
    let shown = text(&shown.stdout);
    let by_caller: u64 = shown
        .lines()
        .filter(|line| line.contains(";caller;"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(by_caller, 300, "{shown}");
}

#[test]
fn probes_of_functions_have_stacks() {
    let (bench, program) = (Bench::new(), victim::c("faults.c"));
    let group = format!("rsunwind_test_{}", std::process::id());
    let script =
        "[ -d /sys/kernel/tracing/events ] || mount -t tracefs nodev /sys/kernel/tracing || exit 77
                  address=$(nm \"$2\" | sed -n 's/ t caller$//p')
                  echo \"p:$1/caller $2:0x$address\" >> /sys/kernel/tracing/uprobe_events || exit 77
                  \"$3\" record -q -e \"$1:caller\" -o \"$4\" -- \"$2\" 10 10; status=$?
                  echo \"-:$1/caller\" >> /sys/kernel/tracing/uprobe_events
                  exit $status";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", &group]);
    command
        .arg(&program)
        .arg(rsunwind())
        .arg(bench.path("profile.rsu"));
    let ran = output(&mut command);
    if ran.status.code() == Some(77) {
        eprintln!("no probes here: {}", text(&ran.stderr));
        return;
    }
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let (all, rows) = report(&bench.path("profile.rsu"), &format!("{group}:caller"));
    assert_eq!((all, own(&rows, "caller")), (1, 1), "{rows:?}");
    assert!(rows.iter().any(|(_, name)| name == "main"), "{rows:?}");
}

#[test]
fn bad_events_are_refused_with_the_remedy_before_the_program_starts() {
    let bench = Bench::new();
    for (events, part) in [
        ("cycels", "did you mean cycles?"),
        ("page-faults,", "an event is missing"),
        ("cycles/umask=3/", "period=N"),
        ("nosuch:event", "event syntax error"),
        ("rffffffffff", "rffffffffff"),
    ] {
        let ran = output(bench.record(&["-e", events]).args(["touch", "started"]));
        assert_eq!(ran.status.code(), Some(2), "{events}");
        assert!(
            text(&ran.stderr).contains(part),
            "{events}: {}",
            text(&ran.stderr)
        );
        assert!(!bench.path("started").exists(), "{events}");
    }
    let timers = output(
        bench
            .record(&["-e", "page-faults", "--trigger=timer"])
            .arg("true"),
    );
    assert_eq!(timers.status.code(), Some(2));
    assert!(text(&timers.stderr).contains("--trigger"));
}

#[test]
fn an_event_that_was_not_recorded_is_said_with_those_that_were() {
    let bench = Bench::new();
    let mut record = bench.record(&["-q", "-e", "page-faults"]);
    assert!(output(record.arg("true")).status.success());
    let mut report = Command::new(rsunwind());
    report
        .arg("report")
        .arg(bench.path("profile.rsu"))
        .args(["--event", "cycles"]);
    let said = output(&mut report);
    assert_eq!(said.status.code(), Some(2));
    let words = text(&said.stderr);
    assert!(
        words.contains("\"cycles\"") && words.contains("cpu, page-faults"),
        "{words}"
    );
}

#[test]
fn formats_that_hold_cpu_time_only_say_so() {
    let bench = Bench::new();
    let mut record = bench.record(&["-q", "-e", "page-faults"]);
    assert!(output(record.arg("true")).status.success());
    let mut export = Command::new(rsunwind());
    export.arg("export").arg(bench.path("profile.rsu"));
    export
        .args(["--event", "page-faults", "-o"])
        .arg(bench.path("out.data"));
    let said = output(&mut export);
    assert_eq!(said.status.code(), Some(1));
    assert!(
        text(&said.stderr).contains("leave --event out"),
        "{}",
        text(&said.stderr)
    );
}
