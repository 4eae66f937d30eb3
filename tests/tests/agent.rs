//! `rsunwind agent`: what it sends is what was recorded, to whomever.

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use rsunwind_tests::agent::{agent, in_two_parts, run, works};
use rsunwind_tests::attach::cpu_ns;
use rsunwind_tests::command::{Bench, text, wait_for};
use rsunwind_tests::receiver::{Answer, Receiver, otlp, pprof, unzipped};
use rsunwind_tests::tables::{in_tables, samples};
use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn all_receivers_get_the_same_and_all_of_it() {
    let bench = Bench::new();
    let program = works(&bench);
    let receiver = Receiver::new(&[]);
    let address = &receiver.address;
    let files = bench.path("files");
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut command = agent();
    command
        .args(["-v", "-F", "499", "--window", "2s", "--label", "a=b,c}"])
        .args(["--service", "shop", "--otlp", address, "--parca", address])
        .args(["--clickhouse", &format!("{address}/profiles")])
        .args(["--pyroscope", address, "--files"])
        .arg(&files)
        .arg("--");
    let (status, says) = run(&bench, &mut command, &program, ["1.5", "1"], || {
        !receiver.taken("/v1development/profiles").is_empty()
    });
    assert_eq!(status, Some(3), "{says}");
    assert!(
        !says.contains("refused") && !says.contains("dropped"),
        "{says}"
    );
    let sent = receiver.taken("/v1development/profiles");
    assert!(sent.len() >= 2, "{says}");
    let (mut sum, mut works) = (0, false);
    let mut last_ns = u64::try_from(before.as_nanos()).unwrap();
    for one in &sent {
        assert!(
            one.headers
                .contains(&"content-type: application/x-protobuf".into())
        );
        let plain = unzipped(&one.body);
        assert!(one.body.len() < 64 << 10, "{} bytes", one.body.len());
        let read = otlp(&plain);
        sum += read.cpu_ns;
        assert_eq!(read.period_ns, 1_000_000_000 / 499);
        // Each window takes the difference of the clocks anew.
        assert!(read.from_ns + 1_000_000_000 > last_ns && read.to_ns >= read.from_ns);
        last_ns = read.to_ns;
        works |= read.functions.iter().any(|name| name == "work_a_while");
        let attribute = |key: &str| {
            let mut all = read.attributes.iter();
            all.find(|(name, _)| name == key).map(|(_, value)| &**value)
        };
        assert_eq!(attribute("service.name"), Some("shop"));
        assert_eq!(attribute("a"), Some("b,c}"));
        assert_eq!(attribute("process.executable.name"), Some("sh"));
        assert!(attribute("host.name").is_some());
    }
    assert!(works, "{says}");
    // Two threads, and two more, of which each has less than a period that is not in a sample.
    let seconds = sum as f64 / 1e9;
    assert!((2.3..2.8).contains(&seconds), "{seconds} s; {says}");
    let of_files = fs::read_dir(&files).unwrap().map(|entry| {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        pprof(&bytes)
    });
    let of_files: Vec<_> = of_files.collect();
    assert_eq!(of_files.len(), sent.len());
    assert_eq!(of_files.iter().map(|(_, sums)| sums[1]).sum::<i64>(), sum);
    let mut of_pyroscope = 0;
    for one in receiver.taken("/ingest") {
        assert!(
            one.path.contains("name=shop%7Ba%3Db%5Fc%5F%2C"),
            "{}",
            one.path
        );
        let start = one.body.windows(2).position(|two| two == [0x1f, 0x8b]);
        of_pyroscope += pprof(&one.body[start.unwrap()..]).1[1];
    }
    assert_eq!(of_pyroscope, sum);
    assert_eq!(receiver.taken("/profiles/writeraw").len(), sent.len());
    let tables = in_tables(&receiver);
    assert_eq!((tables.windows, tables.cpu_ns), (sent.len(), sum));
    assert_eq!(tables.labels["a"], "b,c}");
    assert_eq!(tables.services, HashSet::from(["shop".to_owned()]));
}

#[test]
fn a_receiver_that_fails_costs_nothing_but_time() {
    let bench = Bench::new();
    let program = works(&bench);
    let failures = [
        Answer::Status(503, "Retry-After: 0\r\n"),
        Answer::Status(429, "Retry-After: 0\r\n"),
        Answer::Cut,
    ];
    let receiver = Receiver::new(&failures);
    let spool = bench.path("spool");
    let send = |address: &str, seconds: &str, until: &dyn Fn() -> bool| {
        let mut command = agent();
        command.args(["-v", "--window", "1h", "--otlp", address, "--spool"]);
        command.arg(&spool).arg("--");
        let (status, says) = run(&bench, &mut command, &program, [seconds, "0"], until);
        assert_eq!(status, Some(3), "{says}");
        says
    };
    // Nobody is there: what could not be sent is kept, and sent the next time.
    let nobody = send("http://127.0.0.1:9", "0.3", &|| true);
    assert!(nobody.contains("takes nothing now"), "{nobody}");
    assert!(
        nobody.contains(" 0 windows sent, ") && nobody.contains(" kept for the next time"),
        "{nobody}"
    );
    let [folder] = &fs::read_dir(&spool).unwrap().flatten().collect::<Vec<_>>()[..] else {
        panic!("{nobody}");
    };
    let plain = |address: &str| {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let address = format!("{address}/v1development/profiles");
        address.chars().map(plain).collect::<String>()
    };
    let of_nobody = folder.file_name().into_string().unwrap();
    let of_receiver = of_nobody.replace(&plain("http://127.0.0.1:9"), &plain(&receiver.address));
    assert_ne!(of_nobody, of_receiver);
    fs::rename(folder.path(), spool.join(&of_receiver)).unwrap();
    let says = send(&receiver.address, "0.8", &|| {
        !receiver.taken("/v1development/profiles").is_empty()
    });
    let sent = receiver.taken("/v1development/profiles");
    assert!(
        sent.len() >= 2 && says.contains("takes windows again"),
        "{says}"
    );
    assert!(
        !says.contains("dropped") && !says.contains("kept"),
        "{says}"
    );
    assert_eq!(receiver.posted().len(), sent.len() + failures.len());
    let read = sent.iter().map(|one| otlp(&unzipped(&one.body)));
    let cpu_ns: i64 = read.map(|one| one.cpu_ns).sum();
    let seconds = cpu_ns as f64 / 1e9;
    assert!((0.95..1.4).contains(&seconds), "{seconds} s; {says}");
    assert!(
        fs::read_dir(spool.join(of_receiver))
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn a_service_is_told_of_and_obeys_signals_and_processes_that_run_go_on() {
    let bench = Bench::new();
    let program = works(&bench);
    let receiver = Receiver::new(&[]);
    let config = bench.path("agent.toml");
    let write = |label: &str, rate: u32| {
        let address = &receiver.address;
        let text =
            format!("rate = '{rate}'\n[labels]\nname = '{label}'\n[[send]]\notlp = '{address}'\n");
        fs::write(&config, text).unwrap();
    };
    write("first", 199);
    let socket = bench.path("notify");
    let heard = UnixDatagram::bind(&socket).unwrap();
    heard
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let hear = || {
        let mut words = [0; 256];
        let length = heard.recv(&mut words).expect("a word within a minute");
        String::from_utf8_lossy(&words[..length]).into_owned()
    };
    let mut target = Command::new(&program);
    target.arg("60").stdout(Stdio::null()).stderr(Stdio::null());
    let mut target = target.spawn().unwrap();
    let mut command = agent();
    command
        .args(["-v", "--window", "1h", "--config"])
        .arg(&config);
    command.args(["-p", &target.id().to_string()]);
    command.env("NOTIFY_SOCKET", &socket).stderr(Stdio::piped());
    let agent = command.spawn().unwrap();
    let pid = Pid::from_raw(agent.id().cast_signed());
    assert_eq!(hear(), "READY=1");
    // Nobody ever writes into this one.
    fs::remove_file(&config).unwrap();
    mkfifo(&config, Mode::S_IRWXU).unwrap();
    kill(pid, Signal::SIGHUP).unwrap();
    assert!(hear().starts_with("RELOADING=1"));
    assert_eq!(hear(), "READY=1");
    fs::remove_file(&config).unwrap();
    let work = || {
        let recorded = cpu_ns(target.id());
        wait_for("work", || {
            (cpu_ns(target.id()) > recorded + 200_000_000).then_some(())
        });
    };
    work();
    write("second", 499);
    kill(pid, Signal::SIGHUP).unwrap();
    assert!(hear().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(hear(), "READY=1");
    // The one recording ends and is sent, and then another begins.
    wait_for("a window", || {
        (!receiver.taken("/v1development/profiles").is_empty()).then_some(())
    });
    assert_eq!(hear(), "READY=1");
    work();
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(hear(), "STOPPING=1");
    let out = agent.wait_with_output().unwrap();
    let goes_on = target.try_wait().unwrap().is_none();
    target.kill().unwrap();
    target.wait().unwrap();
    let says = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{says}");
    assert!(
        goes_on && says.contains("settings were read anew"),
        "{says}"
    );
    assert!(says.contains("stay as they were: "), "{says}");
    let sent = receiver.taken("/v1development/profiles").into_iter();
    let sent: Vec<_> = sent.map(|one| otlp(&unzipped(&one.body))).collect();
    let [before, sent] = &sent[..] else {
        panic!("{sent:?}; {says}");
    };
    let hertz = [before, sent].map(|one| 1_000_000_000 / one.period_ns);
    assert_eq!(hertz, [199, 499], "{says}");
    assert!(
        before.cpu_ns > 100_000_000 && sent.cpu_ns > 100_000_000,
        "{before:?}, {sent:?}"
    );
    for (key, value) in [("name", "second"), ("service.name", "published")] {
        let said = (key.to_owned(), value.to_owned());
        assert!(sent.attributes.contains(&said), "{sent:?}; {says}");
    }
    let functions = &mut sent.functions.iter();
    assert!(
        functions.any(|one| one == "work_a_while"),
        "{sent:?}; {says}"
    );
}

#[test]
fn of_a_whole_machine_the_processes_are_sent_that_are_asked_for() {
    let bench = Bench::new();
    // Other tests run it at the same time.
    let name = format!("only-{}", std::process::id());
    let program = bench.path(&name);
    fs::rename(works(&bench), &program).unwrap();
    let receiver = Receiver::new(&[]);
    let mut target = Command::new(&program);
    target.arg("60").stdout(Stdio::null()).stderr(Stdio::null());
    let mut target = target.spawn().unwrap();
    let mut command = agent();
    command
        .args(["-a", "-v", "-F", "199", "--window", "2s", "--clickhouse"])
        .args([&*receiver.address, "--processes"])
        .arg(format!("none, {name}"));
    let agent = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a window", || {
        (!samples(&receiver).is_empty()).then_some(())
    });
    kill(Pid::from_raw(agent.id().cast_signed()), Signal::SIGTERM).unwrap();
    let out = agent.wait_with_output().unwrap();
    target.kill().unwrap();
    target.wait().unwrap();
    let says = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{says}");
    let rows = samples(&receiver);
    let pid = u64::from(target.id());
    let others = rows
        .iter()
        .filter(|row| row["process"] != *name || row["pid"] != pid);
    assert_eq!(others.count(), 0, "{rows:?}");
    let cpu_ns = rows.iter().map(|row| row["cpu_ns"].as_u64().unwrap());
    assert!(cpu_ns.sum::<u64>() > 100_000_000, "{rows:?}");
}

#[test]
fn a_program_that_was_started_is_sampled_at_another_rate_when_settings_say_so() {
    let bench = Bench::new();
    let program = works(&bench);
    let receiver = Receiver::new(&[]);
    let config = bench.path("agent.toml");
    fs::write(&config, "").unwrap();
    let mut command = agent();
    command
        .args(["-v", "-F", "997", "--window", "2s", "--clickhouse"])
        .args([&*receiver.address, "--config"])
        .arg(&config)
        .arg("--");
    let mut line = in_two_parts(&bench, &mut command, &program, ["0.5", "2"]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let samples = || samples(&receiver);
    let time = |rows: &[&Value]| {
        let all = rows.iter().map(|row| row["cpu_ns"].as_u64().unwrap());
        all.sum::<u64>() as f64 / 1e9
    };
    // A window may end within it.
    let before = wait_for("the first part", || {
        let rows = samples();
        (time(&rows.iter().collect::<Vec<_>>()) > 0.45).then_some(rows)
    });
    assert!(before.iter().any(|row| row["weight"] == 1), "{before:?}");
    fs::write(&config, "rate = '97'").unwrap();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGHUP).unwrap();
    thread::sleep(Duration::from_millis(100)); // it reads settings
    line.write_all(b"\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let says = text(&out.stderr);
    assert!(says.contains("settings were read anew"), "{says}");
    // What no sample has is in rows, too.
    let mut after = samples().split_off(before.len());
    after.retain(|row| row["language"] != "none");
    let (rare, often): (Vec<_>, Vec<_>) = after
        .iter()
        .partition(|row| row["weight"].as_u64() >= Some(11));
    let (rare, often, count) = (time(&rare), time(&often), rare.len());
    assert!(
        (1.9..2.3).contains(&(rare + often)),
        "{rare} s, {often} s: {says}"
    );
    assert!(rare > 1.5, "{rare} s of {count}");
}
