//! `rsunwind record -a`: whatever runs is recorded, whether it ran before or begins meanwhile.

use collector::profile::{Profile, Sample};
use rsunwind_tests::assert_measured;
use rsunwind_tests::attach::{Recorder, Target, cpu_ns, used};
use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use rsunwind_tests::paranoid::{NOBODY, Setting, for_everybody};
use rsunwind_tests::profiles;
use rsunwind_tests::statistics::{judge, stands_for, stolen_ns};
use rsunwind_tests::victim;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the samples of a thread stand for, ns, and those of them on complete stacks.
fn delivered(profile: &Profile, tid: u32) -> (u64, u64) {
    let of = |keep: fn(&Sample) -> bool| profiles::delivered(profile, tid, keep);
    (of(|_| true), of(|sample| sample.complete))
}

#[test]
fn what_runs_and_what_begins_is_recorded() {
    judge(|| {
        let bench = Bench::new();
        let running = Target::busy();
        let mut waiting = Target::waiting("\"$1\" 300 2", &[&victim::c("static_split.c")]);
        let before = cpu_ns(running.pid());
        let mut record = Command::new(rsunwind());
        record.args(["record", "-q", "-a", "-F", "500", "--names", "0", "-o"]);
        let recorder = Recorder::begin(record.arg(bench.path("a.rsu")));
        waiting.go();
        let (status, printed) = waiting.end();
        assert_eq!(status, Some(3), "{printed}");
        recorder.signal("INT");
        let (status, said) = recorder.end();
        assert_eq!(status, Some(0), "{said}");
        let used = cpu_ns(running.pid()) - before;

        let profile = profiles::profile(&bench, "a.rsu");
        let (got, complete) = delivered(&profile, running.pid());
        // It is recorded for a part of the time between both looks at its clock.
        assert_measured!(
            got > 50_000_000 && (got as f64) < used as f64 + stolen_ns(),
            "{got} of {used} ns"
        );
        assert_measured!(complete * 100 >= got * 99, "{complete} of {got} complete");
        let lines = printed.lines().filter_map(|line| line.split_once(' '));
        let threads: Vec<(u32, u64)> = lines
            .map(|(tid, ns)| (tid.parse().unwrap(), ns.parse().unwrap()))
            .collect();
        assert_eq!(threads.len(), 2, "{printed}");
        for (tid, ns) in threads {
            let (got, complete) = delivered(&profile, tid);
            assert_measured!(
                stands_for(got as f64, ns as f64, ns as f64 * 0.03 + 8e6),
                "{tid}: {got} of {ns} ns"
            );
            assert_measured!(complete * 100 >= got * 99, "{complete} of {got} complete");
        }
    });
}

/// It unwinds itself for the one, and is copied for the other.
#[test]
fn a_program_under_another_record_is_in_both_recordings() {
    judge(|| {
        let bench = Bench::new();
        let record = |file: &str, what: &[&str]| {
            let mut record = Command::new(rsunwind());
            record.args(["record", "-q", "-F", "999", "-o"]);
            record.arg(bench.path(file)).args(what);
            record
        };
        let recorder = Recorder::begin(&mut record("all.rsu", &["-a", "--names", "0"]));
        let program = victim::c("static_split.c");
        let program = program.to_str().unwrap();
        let ended = output(&mut record("own.rsu", &["--", program, "600", "2"]));
        assert_eq!(ended.status.code(), Some(3), "{}", text(&ended.stderr));
        recorder.signal("INT");
        assert_eq!(recorder.end(), (Some(0), String::new()));
        let profiles = ["all.rsu", "own.rsu"].map(|file| profiles::profile(&bench, file));
        let printed = text(&ended.stdout);
        let used = used(&printed);
        assert_eq!(used.len(), 2, "{printed}");
        for (tid, ns) in used {
            let ns = ns as f64;
            for (profile, least) in profiles.iter().zip([95, 99]) {
                let (got, complete) = delivered(profile, tid);
                assert_measured!(
                    stands_for(got as f64, ns, ns * 0.03 + 8e6),
                    "{tid}: {got} of {ns} ns"
                );
                // The one finds our handler at work now and then, on a stack of its own.
                assert_measured!(
                    complete * 100 >= got * least,
                    "{complete} of {got} complete"
                );
            }
        }
    });
}

/// However long it takes to look at all that runs.
#[test]
fn no_more_time_is_recorded_than_was_asked_for() {
    judge(|| {
        let bench = Bench::new();
        let target = Target::busy();
        let mut record = Command::new(rsunwind());
        record.args(["record", "-q", "-a", "-d", "300ms", "--names", "0", "-o"]);
        let ended = output(record.arg(bench.path("a.rsu")));
        assert!(ended.status.success(), "{}", text(&ended.stderr));
        let profile = profiles::profile(&bench, "a.rsu");
        let (got, _) = delivered(&profile, target.pid());
        assert_measured!((50_000_000..400_000_000).contains(&got), "{got} ns");
    });
}

#[test]
fn who_may_not_is_told_what_helps() {
    let (place, programs) = for_everybody(&[rsunwind()]);
    let Ok(_setting) = Setting::paranoid("1") else {
        eprintln!("NOT RUN: perf_event_paranoid cannot be set here");
        return;
    };
    let mut command = Command::new(&programs[0]);
    command.uid(NOBODY).gid(NOBODY).current_dir(place.path());
    let ended = output(command.args(["record", "-a", "-d", "100ms"]));
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("kernel.perf_event_paranoid to 0"), "{said}");
}

/// A cgroup, which is empty again when it goes.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes one, and puts a process into it.
    fn of(pid: u32) -> Option<Self> {
        let name = format!("rsunwind-test-{pid}");
        let places = ["unified", "", "systemd", "memory"];
        places.iter().find_map(|place| {
            let place = Path::new("/sys/fs/cgroup").join(place);
            let is_one = place.join("cgroup.procs").exists();
            let made = Some(place.join(&name)).filter(|_| is_one)?;
            fs::create_dir(&made).ok()?;
            let made = Self(made);
            fs::write(made.0.join("cgroup.procs"), pid.to_string()).ok()?;
            Some(made)
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        wait_for("an empty cgroup", || fs::remove_dir(&self.0).ok());
    }
}

#[test]
fn processes_have_the_names_and_cgroups_that_they_run_under() {
    let bench = Bench::new();
    let [file, name] = ["checks", "serves"].map(|name| bench.path(name));
    fs::copy(victim::c("static_split.c"), &file).unwrap();
    symlink("checks", &name).unwrap();
    // Which goes when the process has.
    let cgroup;
    let target = Target::start(Command::new(&name).args(["600000", "1"]));
    let who = target.pid().to_string();
    wait_for("its work", || {
        (cpu_ns(target.pid()) > 10_000_000).then_some(())
    });
    cgroup = Cgroup::of(target.pid());
    let mut record = Command::new(rsunwind());
    record.args([
        "record", "-q", "--names", "0", "-d", "200ms", "-p", &who, "-o",
    ]);
    let ended = output(record.arg(bench.path("a.rsu")));
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    drop(target);
    let profile = profiles::profile(&bench, "a.rsu");
    let process = &profile.recording.processes[0];
    assert_eq!(process.name(), "serves");
    assert!(
        process.executable.ends_with("/checks"),
        "{}",
        process.executable
    );
    let Some(cgroup) = cgroup else {
        eprintln!("NOT RUN: no cgroup can be made here");
        return;
    };
    let expected = cgroup.0.file_name().unwrap().to_str().unwrap();
    assert_eq!(process.group().0, expected);
    let mut report = Command::new(rsunwind());
    let shown = output(
        report
            .args(["report", "--by", "cgroup"])
            .arg(bench.path("a.rsu")),
    );
    let shown = text(&shown.stdout);
    assert!(
        shown.contains("CONTAINER") && shown.contains(expected),
        "{shown}"
    );
}
