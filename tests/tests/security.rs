//! What lies where anybody can put something: another user tries to get it believed, or rsunwind to
//! wait. They run as root, who can become another user.

use engine::wire::file::{FileInfo, FileKind};
use rsunwind_tests::command::{Bench, output, rsunwind, sleeps, text, wait_for};
use rsunwind_tests::paranoid::NOBODY;
use rsunwind_tests::victim;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// Runs a script as another user, with `$1`.
fn as_another(script: &str, argument: &Path) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(argument);
    output(shell.uid(NOBODY).gid(NOBODY).current_dir("/"))
}

/// A recording of a shell that goes on until its standard input ends.
struct Waiting {
    record: Child,
    session: PathBuf,
    shell: u32,
}

impl Waiting {
    fn begin(bench: &Bench) -> Self {
        Self::with(bench, "read line; exit 7").0
    }

    /// One that goes on with this script; gives the lines that it prints, too.
    fn with(bench: &Bench, script: &str) -> (Self, Lines<BufReader<ChildStdout>>) {
        let script = format!("echo $$; echo ${{RSUNWIND##*session=}}; {script}");
        let mut record = bench
            .record(&[])
            .args(["sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rsunwind starts");
        let mut lines = BufReader::new(record.stdout.take().expect("piped")).lines();
        let mut next = || lines.next().expect("a line").expect("text");
        let waiting = Self {
            shell: next().parse().expect("a pid"),
            session: next().into(),
            record,
        };
        (waiting, lines)
    }

    fn end(mut self) -> Output {
        drop(self.record.stdin.take());
        self.record.wait_with_output().expect("it ends")
    }
}

#[test]
fn another_user_finds_no_way_into_a_session() {
    let bench = Bench::new();
    let waiting = Waiting::begin(&bench);
    let outer = waiting.session.parent().expect("an inner directory");
    assert!(as_another("test -d \"$1\"", outer).status.success());
    for script in [
        "ls \"$1\"",
        "ls -d \"$1\"/*/",
        "touch \"$1\"/a.seg",
        "rm -r \"$1\"",
    ] {
        let tried = as_another(script, outer);
        assert!(!tried.status.success(), "{script}: {}", text(&tried.stdout));
    }
    let secret = waiting.session.file_name().expect("a name");
    let everywhere = "cat /proc/net/unix /proc/mounts; ls -R /dev/shm; tr '\\0' '\\n' < /proc/\"$1\"/environ; cat /proc/\"$1\"/maps";
    let seen = as_another(everywhere, Path::new(&waiting.shell.to_string()));
    assert!(!text(&seen.stdout).contains(secret.to_str().expect("hexadecimal")));
    // Who is told, as programs of the session are, gets in: it is the name that keeps others out.
    assert!(
        as_another("touch \"$1\"/told", &waiting.session)
            .status
            .success()
    );
    let ended = waiting.end();
    assert_eq!(ended.status.code(), Some(7), "{}", text(&ended.stderr));
}

/// A huge sparse segment of another user's, of the process given.
fn plant(waiting: &Waiting, name: &str, pid: u32, start_ticks: u64) -> PathBuf {
    let info = FileInfo {
        kind: FileKind::Segment,
        machine: 62,
        pid,
        process_key: 1,
        chunkless_samples: 0,
        chunkless_weight: 0,
        unarmed_threads: 0,
        start_ticks,
        length: 0,
    };
    let path = waiting.session.join(name);
    let draft = waiting.session.join("draft");
    let file = File::create(&draft).expect("room");
    file.write_all_at(&info.to_bytes(), 0).expect("room");
    file.set_len(4 << 40).expect("a sparse file");
    chown(&draft, Some(NOBODY), None).expect("root gives files away");
    fs::rename(&draft, &path).expect("a free name");
    path
}

fn start_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = fields.split_ascii_whitespace().nth(19);
    ticks.expect("22 fields").parse().expect("a number")
}

#[test]
fn a_segment_of_another_users_is_not_believed_and_a_huge_one_keeps_no_signal_waiting() {
    let bench = Bench::new();
    let mut waiting = Waiting::begin(&bench);
    let _open = waiting.record.stdin.take();
    let of_the_shell = plant(
        &waiting,
        "1.1.seg",
        waiting.shell,
        start_ticks(waiting.shell),
    );
    wait_for("it to be removed", || {
        (!of_the_shell.exists()).then_some(())
    });
    let of_nobody_knows = plant(&waiting, "2.2.seg", u32::MAX >> 2, 1);
    let killed = Command::new("kill")
        .arg(waiting.record.id().to_string())
        .status();
    assert!(killed.expect("kill runs").success());
    let ended = waiting.record.wait_with_output().expect("it ends");
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(128 + 15), "{told}");
    assert!(
        told.contains("1.1.seg is not read: it belongs to another user"),
        "{told}"
    );
    assert!(!of_nobody_knows.exists());
}

#[test]
fn what_a_process_left_is_believed_from_its_own_user_alone_when_it_is_gone() {
    let bench = Bench::new();
    let script = "sh -c 'echo $$; read line'; read line";
    let (mut waiting, mut lines) = Waiting::with(&bench, script);
    let child: u32 = lines
        .next()
        .expect("a line")
        .expect("text")
        .parse()
        .expect("a pid");
    let ticks = start_ticks(child);
    // Before each of its sleeps rsunwind has looked at who is there.
    let before = sleeps(waiting.record.id());
    wait_for("it to be looked at", || {
        (sleeps(waiting.record.id()) >= before + 5).then_some(())
    });
    let input = waiting.record.stdin.as_mut().expect("piped");
    input.write_all(b"\n").expect("it reads");
    let gone = || (!Path::new(&format!("/proc/{child}")).exists()).then_some(());
    wait_for("it to end", gone);
    let planted = plant(&waiting, "1.1.seg", child, ticks);
    wait_for("it to be removed", || (!planted.exists()).then_some(()));
    let ended = waiting.end();
    let told = text(&ended.stderr);
    assert!(
        told.contains("1.1.seg is not read: it belongs to another user"),
        "{told}"
    );
}

#[test]
fn nobody_speaks_for_another_process() {
    let bench = Bench::new();
    let waiting = Waiting::begin(&bench);
    let begins = format!("{:x}.", waiting.shell);
    let key = wait_for("a segment", || {
        let entries = fs::read_dir(&waiting.session).ok()?.flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.find_map(|name| {
            let key = name.strip_prefix(&begins)?.strip_suffix(".seg")?;
            Some(key.to_owned())
        })
    });
    let intruder = bench.path("intruder");
    fs::copy(victim::c("intruder.c"), &intruder).expect("room");
    fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o755)).expect("ours");
    let mut command = Command::new(&intruder);
    command
        .arg(&waiting.session)
        .args([waiting.shell.to_string(), key]);
    let tried = output(command.uid(NOBODY).gid(NOBODY));
    let may = tried.status.code();
    assert!(matches!(may, Some(0 | 3)), "{}", text(&tried.stderr));
    if may == Some(3) {
        eprintln!("LEFT OUT: another user may have no perf event here, and offers something else");
    }
    let shell = waiting.shell;
    let ended = waiting.end();
    let told = text(&ended.stderr);
    let named = format!("of user {NOBODY} offered it in the name of process {shell}");
    assert!(told.contains(&named), "{told}");
    let recording = bench.recording();
    let samples = recording.samples.iter().filter(|sample| {
        let thread = &recording.threads[sample.thread.index()];
        recording.processes[thread.process.index()].pid == shell
    });
    // It waits, and the other has burnt half a second.
    assert!(samples.count() < 100, "{told}");
}

/// Records `jitted`, and gives what it says and the recording's table.
fn jitted(bench: &Bench, how: &str) -> (String, String) {
    let mut command = bench.record(&[]);
    let ended = output(command.arg(victim::c("jitted.c")).arg(how));
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{how}: {told}");
    let mut report = Command::new(rsunwind());
    let report = output(
        report
            .args(["report", "--no-pager"])
            .arg(bench.path("profile.rsu")),
    );
    let pid = text(&ended.stdout);
    fs::remove_file(format!("/tmp/perf-{}.map", pid.trim())).expect("the map is there");
    (told, text(&report.stdout))
}

#[test]
fn names_of_jit_code_are_its_users_and_a_huge_map_is_read_as_far_as_it_is_one() {
    for (how, named) in [("own", true), ("sparse", true), ("other", false)] {
        let (told, table) = jitted(&Bench::new(), how);
        assert_eq!(table.contains("made_up_"), named, "{how}: {table}");
        let refused = told.contains("is not read: it belongs to user 65534");
        assert_eq!(refused, !named, "{how}: {told}");
    }
}

/// Whether nothing in a text acts on a terminal.
fn is_plain(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    text.chars().all(|character| {
        matches!(character, '\n' | '\t') || !(character.is_control() || character == '\u{202e}')
    })
}

#[test]
fn no_output_has_a_character_that_acts_and_a_picture_is_well_formed() {
    let bench = Bench::new();
    let (told, table) = jitted(&bench, "own");
    assert!(is_plain(told.as_bytes()), "{told:?}");
    assert!(table.contains("made_up_\\u{1b}]0;title\\u{7}"), "{table:?}");
    let command = |arguments: &[&str]| {
        let mut command = Command::new(rsunwind());
        let made = output(command.current_dir(bench.path("")).args(arguments));
        assert!(
            made.status.success(),
            "{arguments:?}: {}",
            text(&made.stderr)
        );
        assert!(
            is_plain(&made.stderr),
            "{arguments:?}: {:?}",
            text(&made.stderr)
        );
        made.stdout
    };
    for by in ["function", "line", "module", "thread", "process"] {
        let table = command(&["report", "--no-pager", "--by", by, "profile.rsu"]);
        assert!(is_plain(&table), "{by}: {:?}", text(&table));
    }
    assert!(is_plain(&command(&["report", "--summary", "profile.rsu"])));
    for how in [&["--tree"][..], &["--format", "json"], &["--format", "csv"]] {
        let table = command(&[&["report", "--no-pager", "profile.rsu"], how].concat());
        assert!(is_plain(&table), "{how:?}: {:?}", text(&table));
        assert!(text(&table).contains("made_up_"), "{how:?}");
    }
    for extension in ["folded", "svg", "perf", "speedscope.json"] {
        let name = format!("out.{extension}");
        command(&["export", "profile.rsu", "-o", &name]);
        let written = fs::read(bench.path(&name)).expect("it was written");
        assert!(is_plain(&written), "{extension}: {:?}", text(&written));
        assert!(text(&written).contains("made_up_"), "{extension}");
    }
    let parse = "import sys, xml.etree.ElementTree as tree; print(len(list(tree.parse(sys.argv[1]).iter())))";
    let parsed = output(
        Command::new("python3")
            .args(["-c", parse])
            .arg(bench.path("out.svg")),
    );
    assert!(parsed.status.success(), "{}", text(&parsed.stderr));
    assert!(!text(&fs::read(bench.path("out.svg")).expect("it is there")).contains("<script>\""));
    for extension in ["pb.gz", "json.gz"] {
        let name = format!("out.{extension}");
        command(&["export", "profile.rsu", "-o", &name]);
        let mut unpacked = Vec::new();
        let packed = File::open(bench.path(&name)).expect("it was written");
        let mut reader = flate2::read::GzDecoder::new(packed);
        std::io::Read::read_to_end(&mut reader, &mut unpacked).expect("gzip");
        let holds = |part: &[u8]| unpacked.windows(part.len()).any(|window| window == part);
        assert!(holds(b"made_up_"), "{extension}");
        assert!(
            !holds(b"\x1b]0;") && !holds("\u{202e}".as_bytes()),
            "{extension}"
        );
    }
    let named = output(Command::new(rsunwind()).args(["report", "no\x1b[31m\nsuch.rsu"]));
    assert!(is_plain(&named.stderr) && text(&named.stderr).lines().count() == 1);
}

#[test]
fn names_of_functions_in_a_programs_tables_do_not_act() {
    let bench = Bench::new();
    // What is looked for: a CFA that is a product has no row.
    let assembly = ".text\n.globl _start\n_start:\n ret\n.type \"a\x1b]0;title\x07\", @function\n\"a\x1b]0;title\x07\":\n.cfi_startproc\n\
        .cfi_escape 0x0f, 4, 0x77, 8, 0x32, 0x1e\n nop\n nop\n ret\n.cfi_endproc\n";
    fs::write(bench.path("names.s"), assembly).expect("room");
    let made = Command::new("gcc")
        .current_dir(bench.path(""))
        .args(["-nostdlib", "-o", "names", "names.s"])
        .status();
    assert!(made.expect("gcc runs").success());
    let sframe = |arguments: &[&str]| {
        let mut command = Command::new(rsunwind());
        let said = output(command.current_dir(bench.path("")).args(arguments));
        assert!(is_plain(&said.stdout) && is_plain(&said.stderr), "{said:?}");
        text(&said.stdout)
    };
    let said = sframe(&["sframe", "convert", "names", "-o", "converted"]);
    assert!(said.contains("a\\u{1b}]0;title\\u{7}"), "{said}");
    let said = sframe(&["sframe", "check", "converted"]);
    assert!(said.contains("a\\u{1b}]0;title\\u{7}"), "{said}");
    sframe(&["sframe", "dump", "converted"]);
}

/// A C++ symbol of some hundred characters for a name that doubles with each of so many steps.
fn doubling(steps: u32) -> String {
    let number = |step: u32| {
        char::from_digit(step, 36)
            .expect("a digit")
            .to_ascii_uppercase()
    };
    let more = (1..steps).map(|step| format!("S_IS{0}_S{0}_E", number(step)));
    format!("_Z1f1AIiiES_IS0_S0_E{}", more.collect::<String>())
}

#[test]
fn a_name_without_end_takes_no_memory() {
    let bench = Bench::new();
    let symbol = doubling(22);
    let source = format!(
        "__attribute__((noinline)) void burn(void) __asm__(\"{symbol}\");\n\
         void burn(void) {{ for (volatile long i = 0; i < 100000000; i++); }}\n\
         int main(void) {{ burn(); return 3; }}"
    );
    let program = bench.compile("gcc", &["-O1"], &source);
    let mut command = Command::new("prlimit");
    command.arg("--data=1000000000").arg(rsunwind());
    command
        .args(["record", "-o"])
        .arg(bench.path("profile.rsu"));
    let ended = output(command.arg(program));
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{told}");
    assert!(told.contains(&symbol[..20]), "{told}");
}

/// The first library that a recorded program has preloaded, and what rsunwind says.
fn library(cache: &Path) -> (PathBuf, String) {
    let bench = Bench::new();
    let mut command = bench.record(&[]);
    let ended = output(
        command
            .args(["sh", "-c", "echo $LD_PRELOAD"])
            .env("XDG_CACHE_HOME", cache),
    );
    let list = text(&ended.stdout);
    let first = list.trim().split(':').next().expect("one at least");
    (first.into(), text(&ended.stderr))
}

#[test]
fn no_library_is_loaded_from_below_a_directory_of_another_user() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let cache = directory.path().join("cache");
    fs::create_dir(&cache).expect("room");
    let (own, told) = library(&cache);
    assert!(
        own.starts_with(fs::canonicalize(&cache).expect("it is there")),
        "{told}"
    );
    assert!(!told.contains("not put into"), "{told}");
    fs::remove_dir_all(cache.join("rsunwind")).expect("it was made");

    chown(&cache, Some(NOBODY), None).expect("root gives files away");
    let (other, told) = library(&cache);
    assert!(!other.starts_with(&cache), "{}", other.display());
    assert!(
        told.contains("the preload library is not put into"),
        "{told}"
    );
    assert!(told.contains("belongs to user 65534"), "{told}");
    assert_eq!(fs::read_dir(&cache).expect("it is there").count(), 0);
    for above in other.ancestors().skip(1) {
        let metadata = fs::metadata(above).expect("it is there");
        let sticky = metadata.mode() & 0o1000 != 0;
        assert!(
            metadata.uid() == 0 && (sticky || metadata.mode() & 0o022 == 0),
            "{above:?}"
        );
    }
}
