//! `rsunwind agent` where a clock is put, or another agent is at work: the program is as without
//! it, and each message counts once.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsunwind_tests::agent::{agent, agent_below, in_two_parts, run, works};
use rsunwind_tests::attach::{cpu_ns, threads};
use rsunwind_tests::command::{Bench, text, wait_for};
use rsunwind_tests::receiver::{Otlp, Receiver, otlp, pprof, unzipped};
use rsunwind_tests::tables::in_tables;
use rsunwind_tests::victim;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const OTLP: &str = "/v1development/profiles";

/// The windows that an OpenTelemetry receiver took, in order; none twice.
fn windows(receiver: &Receiver) -> Vec<Otlp> {
    let sent = receiver.taken(OTLP).into_iter();
    let sent: Vec<_> = sent.map(|one| otlp(&unzipped(&one.body))).collect();
    let times: HashSet<_> = sent.iter().map(|one| (one.from_ns, one.to_ns)).collect();
    assert_eq!(times.len(), sent.len(), "a window came twice");
    sent
}

fn sum(windows: &[Otlp]) -> i64 {
    windows.iter().map(|one| one.cpu_ns).sum()
}

/// The files in a folder, and the sum of what is in them, ns.
fn in_files(folder: &Path) -> (usize, i64) {
    let files = fs::read_dir(folder).unwrap().flatten();
    let sums = files.map(|file| pprof(&fs::read(file.path()).unwrap()).1[1]);
    let sums: Vec<_> = sums.collect();
    (sums.len(), sums.iter().sum())
}

/// CPU time of all threads of a process, ns.
fn cpu_ns_of_all(pid: u32) -> u64 {
    threads(pid).into_iter().map(cpu_ns).sum()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

#[test]
fn a_clock_that_is_put_back_and_forward_costs_no_window() {
    const HOUR: i64 = 3600;
    let bench = Bench::new();
    let program = works(&bench);
    let receiver = Receiver::new(&[]);
    let clock = bench.path("clock");
    fs::write(&clock, [0; 8]).unwrap();
    let clock = fs::File::options().write(true).open(clock).unwrap();
    let put = |seconds: i64| clock.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    let files = bench.path("files");
    let mut command = agent();
    command
        .args(["-v", "-F", "499", "--window", "2s", "--service", "shop"])
        .args(["--otlp", &receiver.address, "--clickhouse"])
        .arg(format!("{}/profiles", receiver.address))
        .arg("--files")
        .arg(&files)
        .env("LD_PRELOAD", victim::shared("put_clock.c"))
        .env("CLOCK_AHEAD", bench.path("clock"))
        .stderr(Stdio::piped())
        .arg("--");
    let mut line = in_two_parts(&bench, &mut command, &program, ["0.5", "12"]);
    let child = command.spawn().unwrap();
    let window = |is_it: &dyn Fn(&Otlp) -> bool| {
        wait_for("a window", || windows(&receiver).into_iter().find(is_it))
    };
    let first = window(&|_| true).from_ns;
    put(-HOUR);
    line.write_all(b"\n").unwrap();
    let half = HOUR.cast_unsigned() * 500_000_000;
    window(&|one| one.from_ns < first - half);
    put(HOUR);
    let out = child.wait_with_output().unwrap();
    let says = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{says}");
    let sent = windows(&receiver);
    assert!(
        sent.iter().any(|one| one.from_ns > first + half),
        "{sent:?}"
    );
    assert!(sent.iter().all(|one| one.from_ns <= one.to_ns), "{sent:?}");
    let seconds = sum(&sent) as f64 / 1e9;
    assert!((12.25..13.1).contains(&seconds), "{seconds} s; {says}");
    let tables = in_tables(&receiver);
    assert_eq!((tables.windows, tables.cpu_ns), (sent.len(), sum(&sent)));
    assert_eq!(in_files(&files), (sent.len(), sum(&sent)));
    let all = format!(" {} windows sent", sent.len());
    assert_eq!(says.matches(&all).count(), 3, "{says}");
}

#[test]
fn two_agents_of_one_process_share_folders_and_each_sends_all() {
    let bench = Bench::new();
    let program = works(&bench);
    let mut target = Command::new(&program);
    target.arg("60").stdout(Stdio::null()).stderr(Stdio::null());
    let mut target = target.spawn().unwrap();
    let receivers = [Receiver::new(&[]), Receiver::new(&[])];
    let (files, spool) = (bench.path("files"), bench.path("spool"));
    let agents = receivers.each_ref().map(|receiver| {
        let mut command = agent();
        command
            .args(["-v", "-F", "199", "--window", "2s", "--service", "shop"])
            .args(["--otlp", &receiver.address, "--otlp", "http://127.0.0.1:9"])
            .args([Path::new("--spool"), &spool, Path::new("--files"), &files])
            .args(["-p", &target.id().to_string()]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    });
    for receiver in &receivers {
        wait_for("windows", || (!windows(receiver).is_empty()).then_some(()));
    }
    let before = cpu_ns_of_all(target.id());
    wait_for("work", || {
        (cpu_ns_of_all(target.id()) > before + 4_000_000_000).then_some(())
    });
    let says = agents.map(|child| {
        signal(&child, Signal::SIGTERM);
        let out = child.wait_with_output().unwrap();
        let says = text(&out.stderr);
        assert_eq!(out.status.code(), Some(0), "{says}");
        says
    });
    let used = cpu_ns_of_all(target.id());
    assert!(target.try_wait().unwrap().is_none(), "{says:?}");
    target.kill().unwrap();
    target.wait().unwrap();
    let mut sent = Vec::new();
    for (receiver, says) in receivers.iter().zip(&says) {
        let all = windows(receiver);
        // What was used before the first window, or since the signal, is not quite known.
        let seconds = sum(&all) as f64 / 1e9;
        assert!(
            seconds > 4.0 && seconds < used as f64 / 1e9,
            "{seconds} s; {says}"
        );
        assert!(
            says.contains(&format!(" {} windows sent", all.len())),
            "{says}"
        );
        assert!(says.contains(" kept for the next time"), "{says}");
        sent.extend(all);
    }
    assert_eq!(in_files(&files), (sent.len(), sum(&sent)));
    // Whom nobody answers has a folder for each of both, with all of its windows.
    let folders = fs::read_dir(&spool).unwrap().flatten();
    let of_nobody = folders.filter(|it| it.file_name().to_string_lossy().contains("_127_0_0_1_9_"));
    let kept = of_nobody.map(|folder| fs::read_dir(folder.path()).unwrap().count());
    let mut kept: Vec<_> = kept.collect();
    let mut counts = receivers.each_ref().map(|one| windows(one).len());
    kept.sort_unstable();
    counts.sort_unstable();
    assert_eq!(kept, counts, "{says:?}");
}

/// The number before these words in the line that tells of a receiver's windows at the end.
fn counted(says: &str, receiver: &str, what: &str) -> usize {
    let line = says
        .lines()
        .rfind(|line| line.contains(receiver) && line.contains(" sent"));
    let before = line.and_then(|line| line.split_once(what));
    let number = before.and_then(|(before, _)| before.trim_end().rsplit(' ').next());
    number.map_or(0, |number| number.parse().unwrap())
}

#[test]
fn a_full_disk_costs_only_windows_that_have_no_other_place() {
    const WITH_A_SMALL_DISK: &str = r#"mount -t tmpfs -o size=8k none "$1" && shift && exec "$@""#;
    let bench = Bench::new();
    let program = works(&bench);
    let receiver = Receiver::new(&[]);
    let disk = bench.path("disk");
    fs::create_dir(&disk).unwrap();
    let settings = bench.path("settings.toml");
    fs::write(&settings, "memory = \"64K\"\n").unwrap();
    let words = ["unshare", "-rm", "sh", "-c", WITH_A_SMALL_DISK, "sh"];
    let mut words: Vec<_> = words.iter().map(OsStr::new).collect();
    words.push(disk.as_os_str());
    let mut command = agent_below(&words);
    command
        .args(["-v", "-F", "499", "--window", "2s", "--service", "shop"])
        .args(["--otlp", &receiver.address])
        .args(["--otlp", "http://127.0.0.1:9"])
        .args([Path::new("--config"), &settings])
        .args([Path::new("--spool"), &disk.join("spool")])
        .args([Path::new("--files"), &disk.join("files"), Path::new("--")]);
    let several = || windows(&receiver).len() > 3;
    let (status, says) = run(&bench, &mut command, &program, ["20", "1"], several);
    assert_eq!(status, Some(3), "{says}");
    let sent = windows(&receiver);
    let seconds = sum(&sent) as f64 / 1e9;
    assert!((20.6..22.0).contains(&seconds), "{seconds} s; {says}");
    // Who takes windows has all; of each other the account adds up, and the reason is said once.
    assert_eq!(
        counted(&says, &receiver.address, "windows sent"),
        sent.len(),
        "{says}"
    );
    let full = "No space left on device";
    let receivers = [
        ("127.0.0.1:9", "no window can be kept"),
        ("disk/files", "make room"),
    ];
    for (name, why) in receivers {
        let of = |what| counted(&says, name, what);
        let all = of("windows sent") + of("window sent") + of("dropped") + of("kept for the");
        assert_eq!(all, sent.len(), "{name}: {says}");
        assert!(of("dropped") > 0, "{name}: {says}");
        let told = says
            .lines()
            .filter(|line| line.contains(name) && line.contains(why) && line.contains(full));
        assert_eq!(told.count(), 1, "{name}: {says}");
    }
}
