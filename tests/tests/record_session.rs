//! What becomes of a session: descendants that outlive the command, an rsunwind that is killed,
//! files that JITs write.

use collector::charge::{Ledger, Reason};
use collector::correlate;
use collector::recording::unpacked;
use rsunwind_tests::command::{BUSY, Bench, output, rsunwind, text, wait_for};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The session directory that a program sees in its environment.
fn session_of(settings: &str) -> PathBuf {
    settings
        .split(',')
        .find_map(|setting| setting.trim().strip_prefix("session="))
        .expect("a session")
        .into()
}

#[test]
fn a_session_leaves_nothing_behind() {
    let bench = Bench::new();
    let printed = output(bench.record(&["-q"]).args([
        "sh",
        "-c",
        "echo $RSUNWIND; ls -ld ${RSUNWIND##*session=}",
    ]))
    .stdout;
    let printed = text(&printed);
    let session = session_of(printed.lines().next().unwrap());
    assert!(printed.contains("drwx"), "it was there: {printed}");
    assert!(!session.exists(), "{}", session.display());
}

#[test]
fn what_programs_leave_that_were_gone_before_anybody_looked_is_put_away() {
    let bench = Bench::new();
    let script =
        "i=0; while [ $i -lt 40 ]; do /bin/true; i=$((i+1)); done; echo $RSUNWIND; read go";
    let mut recorder = bench
        .record(&["-q", "-F", "999"])
        .args(["sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut settings = String::new();
    BufReader::new(recorder.stdout.take().unwrap())
        .read_line(&mut settings)
        .unwrap();
    let session = session_of(settings.trim());
    let is_segment = |file: &fs::DirEntry| file.path().extension().is_some_and(|end| end == "seg");
    wait_for("all but the shell's segment to be put away", || {
        let files = fs::read_dir(&session).unwrap().flatten();
        (files.filter(is_segment).count() == 1).then_some(())
    });
    drop(recorder.stdin.take());
    recorder.wait().unwrap();
    assert!(bench.recording().processes.len() > 40);
}

#[test]
fn record_ends_with_its_command_and_a_descendant_goes_on() {
    let bench = Bench::new();
    let (marker, go) = (bench.path("lived"), bench.path("go"));
    let script = format!(
        "(i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; : > began
          while [ -e began ] && [ ! -e {go} ]; do :; done; echo done > {lived}) >/dev/null 2>&1 &
         while [ ! -e began ]; do :; done; sleep 0.01; exit 8",
        go = go.display(),
        lived = marker.display()
    );
    let result = output(bench.record(&["-q"]).args(["sh", "-c", &script]));
    assert_eq!(result.status.code(), Some(8));
    assert!(!marker.exists(), "rsunwind did not wait for it");
    assert_eq!(bench.recording().processes.len(), 3, "two shells and sleep");
    assert!(bench.recording().session.is_some());
    fs::write(go, "").unwrap();
    let written = wait_for("the descendant", || {
        fs::read_to_string(&marker)
            .ok()
            .filter(|text| text.ends_with('\n'))
    });
    assert_eq!(written, "done\n");
}

#[test]
fn a_descendant_that_runs_on_is_named_and_can_be_waited_for() {
    // In a session of its own, its parent gone; it runs until it is let go.
    let script = "setsid sh -c 'while [ ! -e go ]; do sleep 0.05; done' >/dev/null 2>&1 & exit 8";
    let bench = Bench::new();
    let result = output(bench.record(&[]).args(["sh", "-c", script]));
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(result.status.code(), Some(8));
    let said = text(&result.stderr);
    let line = said
        .lines()
        .find(|line| line.contains("run on") || line.contains("runs on"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("record --wait"), "{line}");

    let bench = Bench::new();
    let marker = bench.path("lived");
    let script = format!(
        "(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo $i > {}) >/dev/null 2>&1 & exit 8",
        marker.display()
    );
    let result = output(bench.record(&["--wait"]).args(["sh", "-c", &script]));
    assert_eq!(result.status.code(), Some(8));
    assert_eq!(fs::read_to_string(&marker).unwrap(), "300000\n");
    assert!(!text(&result.stderr).contains("runs on"), "{result:?}");
    let ledger = Ledger::of(&bench.recording());
    let [(process, ns)] = ledger.unwaited[..] else {
        panic!("{:?}", ledger.unwaited);
    };
    let recording = bench.recording();
    assert!(ns > 10_000_000, "{ns}");
    assert_eq!(recording.processes[process.index()].name(), "dash");
}

#[test]
fn what_a_killed_rsunwind_leaves_is_readable_and_the_program_goes_on() {
    let bench = Bench::new();
    let script = "echo $RSUNWIND; while [ -d \"$PWD\" ] && [ ! -e go ]; do :; done; echo done";
    let mut command = bench.record(&["-F", "10k"]);
    let mut child = command
        .args(["sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let session = session_of(&lines.next().unwrap().unwrap());
    // A chunk that was sealed and drained: something is in the recording already.
    let path = wait_for("the first chunk", || {
        let begun = bench.begun();
        begun.filter(|path| fs::metadata(path).is_ok_and(|file| file.len() > 8192))
    });
    child.kill().unwrap();
    child.wait().unwrap();

    let drained = correlate::read(&[&path]).unwrap();
    assert!(drained.session.is_none() && !drained.samples.is_empty());
    assert_eq!(
        drained.files[0].damages.count(),
        0,
        "{:?}",
        drained.files[0].damages
    );
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(
        lines.next().unwrap().unwrap(),
        "done",
        "the program goes on"
    );
    assert!(lines.next().is_none(), "until its end it may be sampled");
    let both = correlate::read(&[&session]).unwrap();
    assert!(
        both.samples.len() > drained.samples.len(),
        "{} and {}",
        both.samples.len(),
        drained.samples.len()
    );
    assert_eq!(both.processes.len(), 1);
    assert!(both.processes[0].identified);
    let whole = session.parent().unwrap();
    let again = correlate::read(&[whole]).unwrap();
    assert_eq!(again.samples.len(), both.samples.len());
    let told = text(&output(bench.record(&[]).arg("true")).stderr);
    assert!(
        told.contains(whole.to_str().unwrap()),
        "it is not forgotten: {told}"
    );
    let told = text(&output(bench.record(&[]).arg("true")).stderr);
    assert!(!told.contains("was left by"), "it is told of once: {told}");

    // Where it is the newest recording, and none is named, all of it is read.
    let done = fs::File::options()
        .write(true)
        .open(bench.path("profile.rsu"));
    done.unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let mut report = Command::new(rsunwind());
    report
        .args(["report", "--summary"])
        .current_dir(bench.path(""));
    let report = output(&mut report);
    let told = text(&report.stderr);
    assert!(told.contains(whole.to_str().unwrap()), "{told}");
    let samples = format!("{} samples", both.samples.len());
    assert!(
        text(&report.stdout).contains(&samples),
        "{samples}: {report:?}"
    );
    fs::remove_dir_all(whole).unwrap();
}

#[test]
fn a_recording_takes_its_name_when_it_is_done_and_an_unnamed_one_keeps_the_older() {
    let bench = Bench::new();
    fs::write(bench.path("rsunwind.rsu"), "old").unwrap();
    let record = |arguments: &[&str]| {
        let mut command = Command::new(rsunwind());
        command.current_dir(bench.path("")).args(["record", "-q"]);
        output(command.args(arguments)).stdout
    };
    let seen = record(&["sh", "-c", "cat rsunwind.rsu; ls rsunwind.rsu.*.rsu"]);
    assert!(
        text(&seen).starts_with("oldrsunwind.rsu."),
        "{}",
        text(&seen)
    );
    assert_eq!(fs::read(bench.path("rsunwind.rsu.old")).unwrap(), b"old");
    assert!(correlate::read(&[bench.path("rsunwind.rsu")]).is_ok());
    let pid = text(&record(&[
        "-o",
        "%p-%h.rsu",
        "sh",
        "-c",
        "echo $$; uname -n",
    ]));
    let name = format!("{}.rsu", pid.trim().replace('\n', "-"));
    assert!(correlate::read(&[bench.path(&name)]).is_ok(), "{name}");
    let names = fs::read_dir(bench.path("")).unwrap();
    assert_eq!(names.count(), 3, "nothing else is left");
}

#[test]
fn samples_are_drained_while_the_program_runs_and_its_memory_is_used_again() {
    let bench = Bench::new();
    // Until more than the segment may have is in the recording, or a minute of CPU time has not
    // sufficed: what the rate can be is the machine's affair.
    let script = "until read -ra s < /proc/$$/stat; (( $(stat -Lc %s profile.rsu.*.rsu) > 270000 || s[13] > 6000 )); do
                      for ((i=0; i<30000; i++)); do :; done; done
                  ls -l ${RSUNWIND##*session=}";
    let mut command = bench.record(&["-q", "-F", "20k", "--size", "256K"]);
    let printed = text(&output(command.args(["bash", "-c", script])).stdout);
    let recording = bench.recording();
    let written = unpacked(&bench.path("profile.rsu")).unwrap().len();
    assert!(
        written > 256 << 10,
        "{written} bytes were recorded, more than the segment may have: {printed}"
    );
    let lost: u64 = recording
        .threads
        .iter()
        .map(|thread| thread.totals.lost_samples)
        .sum();
    assert_eq!((lost, recording.chunkless_samples), (0, 0));
}

#[test]
fn the_map_of_a_jit_is_taken_along() {
    let bench = Bench::new();
    let script = "(echo 1000 10 jitted_one; echo 2000 20 jitted two) > /tmp/perf-$$.map; echo $$";
    let pid = text(&output(bench.record(&["-q"]).args(["sh", "-c", script])).stdout);
    fs::remove_file(format!("/tmp/perf-{}.map", pid.trim())).unwrap();
    let recording = bench.recording();
    let process = recording
        .processes
        .iter()
        .find(|process| process.pid.to_string() == pid.trim())
        .unwrap();
    assert_eq!(
        text(&process.perf_map),
        "1000 10 jitted_one\n2000 20 jitted two\n"
    );
}

#[test]
fn an_older_recording_is_overwritten_only_by_a_new_one() {
    let bench = Bench::new();
    fs::write(bench.path("profile.rsu"), "old").unwrap();
    assert_eq!(
        output(bench.record(&[]).arg("no-such-program"))
            .status
            .code(),
        Some(127)
    );
    assert_eq!(fs::read(bench.path("profile.rsu")).unwrap(), b"old");
    assert_eq!(output(bench.record(&[]).arg("true")).status.code(), Some(0));
    assert_eq!(bench.recording().processes.len(), 1);
    let mut unnamed = Command::new(rsunwind());
    unnamed.current_dir(bench.path("")).args(["record", "true"]);
    assert_eq!(output(&mut unnamed).status.code(), Some(0));
    assert!(
        correlate::read(&[bench.path("rsunwind.rsu")]).is_ok(),
        "the default name"
    );
}

/// Each is seen as root's, and has ended before anybody sees whose it has become.
#[test]
fn a_program_that_gives_up_roots_rights_and_ends_at_once_is_believed() {
    if output(Command::new("id").arg("-u")).stdout != b"0\n" {
        return; // there are no rights to give up
    }
    let bench = Bench::new();
    let busy = |turns| format!("i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done");
    let last = format!(
        "setpriv --reuid=65534 --clear-groups sh -c '{}'",
        busy(3000)
    );
    let script = format!("{}; exec {last}", busy(200_000));
    let all = ["0", "1", "2"]
        .map(|number| format!("sh -c \"$SCRIPT\" {number}"))
        .join("; ");
    let mut command = bench.record(&["-q"]);
    command.env("SCRIPT", script);
    let result = output(command.args(["sh", "-c", &all]));
    assert_eq!(text(&result.stderr), "");
    let of_another =
        |process: &&collector::recording::Process| process.command.get(2) == Some(&busy(3000));
    let recording = bench.recording();
    assert_eq!(recording.processes.iter().filter(of_another).count(), 3);
}

#[test]
fn a_program_that_gives_up_roots_rights_is_recorded_on() {
    if output(Command::new("id").arg("-u")).stdout != b"0\n" {
        return; // there are no rights to give up
    }
    let bench = Bench::new();
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; id -u";
    let mut command = bench.record(&["-q"]);
    let result = output(command.args([
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sh",
        "-c",
        script,
    ]));
    assert_eq!(
        (text(&result.stdout), text(&result.stderr)),
        ("65534\n".into(), String::new())
    );
    let recording = bench.recording();
    let shell = recording
        .processes
        .iter()
        .position(|process| process.command[0] == "sh")
        .unwrap();
    let sampled = recording
        .threads
        .iter()
        .any(|thread| thread.process.index() == shell && thread.totals.samples > 10);
    assert!(sampled, "{:?}", recording.processes);
}

/// `unshare --pid` alone leaves the old `/proc`, in which the program's number is another's.
#[test]
fn a_session_in_a_pid_namespace_without_a_proc_of_its_own_has_its_samples() {
    let bench = Bench::new();
    let busy = bench.compile("gcc", &["-O1"], BUSY);
    let mut command = Command::new("unshare");
    command.args(["-rpf"]).arg(rsunwind());
    command.current_dir(bench.path(""));
    let result = output(
        command
            .args(["record", "-o", "profile.rsu", "-v"])
            .arg(busy),
    );
    let said = text(&result.stderr);
    if said.contains("Operation not permitted") {
        eprintln!("skipped: no user namespaces here");
        return;
    }
    assert_eq!(result.status.code(), Some(3), "{said}");
    assert!(!said.contains("not sampled"), "{said}");
    let recording = bench.recording();
    let session = recording.session.as_ref().expect("the recording is whole");
    let sampled: u64 = Ledger::of(&recording)
        .rows
        .iter()
        .filter(|row| row.reason == Reason::Sampled)
        .map(|row| row.ns)
        .sum();
    assert!(sampled > session.charged_ns / 2, "{said}");
}
