//! `rsunwind dump`: stacks of threads that sleep, run, wait for each other or are stopped, of
//! programs of many kinds, which are none the worse for it.

use rsunwind_tests::beside::Beside;
use rsunwind_tests::command::{Bench, output, rsunwind, shell, text, wait_for};
use rsunwind_tests::paranoid::for_everybody;
use rsunwind_tests::{pythons, victim};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

fn dump(arguments: &[&str]) -> Value {
    let result = output(
        Command::new(rsunwind())
            .args(["dump", "--json"])
            .args(arguments),
    );
    assert!(result.status.success(), "{}", text(&result.stderr));
    serde_json::from_slice(&result.stdout).expect("JSON")
}

fn dump_of(beside: &Beside) -> Value {
    dump(&[&beside.pid().to_string()])
}

/// Threads of that name.
fn named<'d>(dump: &'d Value, name: &str) -> Vec<&'d Value> {
    let threads = dump["threads"].as_array().unwrap();
    threads
        .iter()
        .filter(|thread| thread["name"] == name)
        .collect()
}

/// The functions of a thread, from leaf to root, of those kinds.
fn functions<'d>(thread: &'d Value, kinds: &[&str]) -> Vec<&'d str> {
    let frames = thread["frames"].as_array().unwrap().iter();
    let wanted = frames.filter(|frame| kinds.contains(&frame["kind"].as_str().unwrap()));
    wanted
        .map(|frame| frame["function"].as_str().unwrap())
        .collect()
}

/// Whether these are among them, in this order.
fn in_order(functions: &[&str], wanted: &[&str]) -> bool {
    let mut all = functions.iter();
    wanted
        .iter()
        .all(|wanted| all.any(|function| function == wanted))
}

/// What each thread of the victim `waiting` waits in.
const WAITS: [(&str, &str); 10] = [
    ("nanosleep", "clock_nanosleep"),
    ("poll", "poll"),
    ("select", "pselect6"),
    ("epoll", "epoll_wait"),
    ("recv", "recvfrom"),
    ("sem", "futex"),
    ("cond", "futex"),
    ("sigwait", "rt_sigtimedwait"),
    ("child", "wait4"),
    ("read", "read"),
];

/// Why a dump of it is not what it should be.
fn wrong(dump: &Value) -> Option<String> {
    for (name, call) in WAITS {
        let function = format!("wait_in_{name}");
        let is_right = |thread: &&Value| {
            let found = functions(thread, &["native"]);
            thread["call"]["name"] == call
                && in_order(&found, &[&function, "start_thread", "clone3"])
                && thread["notes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|note| note.as_str().unwrap().contains("not stopped"))
        };
        if !named(dump, name).iter().any(is_right) {
            return Some(format!("{name}: {:#?}", named(dump, name)));
        }
    }
    let running = named(dump, "running");
    let runs = running.iter().any(|thread| {
        in_order(
            &functions(thread, &["native"]),
            &["compute", "start_thread"],
        )
    });
    let deadlocks = dump["problems"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|problem| {
            let problem = problem.as_str().unwrap();
            problem.starts_with("deadlock: ") && problem.matches("a mutex that thread").count() == 2
        });
    match (runs, deadlocks.count()) {
        (true, 1) => None,
        other => Some(format!("{other:?} {:#?}", dump["problems"])),
    }
}

fn is_traced(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    !status.lines().any(|line| line == "TracerPid:\t0")
}

#[test]
fn all_kinds_of_waits_are_read_and_go_on_as_they_were() {
    let program = victim::c("waiting.c");
    // On a machine that has no time for us the waits have to be longer.
    for limit in [3, 12, 50] {
        let began = Instant::now();
        let mut beside = Beside::start(Command::new(&program).arg(limit.to_string()));
        let pid = beside.pid().to_string();
        let mut last = [None, None];
        let in_time = || began.elapsed().as_secs() < limit;
        for (arguments, last) in [[&*pid].as_slice(), &["--stop", &*pid]]
            .iter()
            .zip(&mut last)
        {
            *last = Some("no dump".to_owned());
            while last.is_some() && in_time() {
                *last = wrong(&dump(arguments));
            }
            assert!(!is_traced(beside.pid()));
        }
        let was_in_time = in_time();
        let rest = beside.rest();
        assert!(rest.starts_with("early 0 interrupted 0\n"), "{rest}");
        if was_in_time || limit == 50 {
            assert_eq!(last, [None, None]);
            break;
        }
    }
}

#[test]
fn stops_lose_no_signal_and_end_no_call() {
    const STOPS: usize = 8;
    let mut beside = Beside::start(&mut Command::new(victim::c("stopped_often.c")));
    for _ in 0..STOPS {
        dump(&["--stop", &beside.pid().to_string()]);
    }
    beside.signal(libc::SIGUSR1);
    assert_eq!(beside.rest(), "lost 0 interrupted 0\nsome 1\n");
}

#[test]
fn who_has_seen_enough_may_go() {
    let own = std::process::id().to_string();
    let script = "\"$1\" dump \"$2\" | true; echo ${PIPESTATUS[0]}";
    let mut shell = Command::new("bash");
    shell.args(["-c", script, "bash"]).arg(rsunwind()).arg(own);
    let result = output(&mut shell);
    assert_eq!(
        (text(&result.stdout), text(&result.stderr)),
        ("0\n".into(), String::new())
    );
}

#[test]
fn python_frames_stand_behind_the_loop_that_runs_them() {
    let script = "import threading, time
def inner(n):
    if n: return inner(n - 1)
    time.sleep(60)
def key(x):
    inner(2)
def spin():
    while True: sum(range(100))
threading.Thread(target=spin, daemon=True).start()
print('ready', flush=True)
sorted([1], key=key)
";
    for (minor, python) in pythons::three() {
        let beside = Beside::start(Command::new(python).args(["-c", script]));
        wait_for("Python that sleeps, and runs", || {
            let dump = dump_of(&beside);
            let threads = dump["threads"].as_array().unwrap();
            let both = ["native", "python"];
            let sleeps = in_order(
                &functions(&threads[0], &both),
                &["inner", "inner", "inner", "key", "<module>", "_start"],
            );
            let python = functions(&threads[0], &["python"]);
            let spins = functions(&threads[1], &both);
            let last = if minor > 10 {
                "Thread._bootstrap"
            } else {
                "_bootstrap"
            };
            let spins =
                in_order(&spins, &["spin", last, "start_thread"]) && threads[1]["has_gil"] == true;
            let name = if minor > 9 {
                "Thread-1 (spin)"
            } else {
                "Thread-1"
            };
            let named = threads[1]["name"] == name && threads[0]["name"] != name;
            let is_right = sleeps && spins && named && python.len() == 5;
            (is_right && threads[0]["has_gil"] == false).then_some(())
        });
    }
}

#[test]
fn javascripts_functions_stand_behind_the_code_that_runs_them() {
    let script = "const { Worker } = require('worker_threads');
function waits() {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60000);
}
function first() { [1].forEach(waits); }
new Worker('function spin() { for (;;); } spin()', { eval: true });
console.log('ready');
first();
";
    let beside = Beside::start(Command::new("node").args(["-e", script]));
    let pid = beside.pid().to_string();
    for arguments in [&[&*pid][..], &["--stop", &pid]] {
        wait_for("JavaScript that sleeps, and runs", || {
            let dump = dump(arguments);
            let threads = dump["threads"].as_array().unwrap();
            let both = ["native", "javascript"];
            let mut stacks = threads.iter().map(|thread| functions(thread, &both));
            let sleeps = in_order(
                &functions(&threads[0], &both),
                &["waits", "forEach", "first", "_start"],
            );
            let frames = threads[0]["frames"].as_array().unwrap().iter();
            let is_right = |frame: &Value| {
                frame["function"] != "waits" || frame["kind"] == "javascript" && frame["line"] == 3
            };
            let spins = stacks.any(|stack| in_order(&stack, &["spin", "start_thread"]));
            (sleeps && spins && frames.clone().all(is_right)).then_some(())
        });
    }
}

#[test]
fn programs_of_other_kinds_are_read() {
    let bench = Bench::new();
    let source = "#include <unistd.h>\n#include <stdio.h>\n\
        __attribute__((noinline)) int waits(void) { return pause() + 1; }\n\
        int main(void) { puts(\"ready\"); fflush(stdout); return waits() + 1; }";
    let static_ = bench.compile("gcc", &["-static", "-O2"], source);
    let beside = Beside::start(&mut Command::new(static_));
    wait_for("a static program", || {
        let dump = dump_of(&beside);
        let thread = &dump["threads"][0];
        (thread["call"]["name"] == "pause"
            && in_order(
                &functions(thread, &["native"]),
                &["waits", "main", "_start"],
            ))
        .then_some(())
    });
    let script = "console.log('ready'); setTimeout(() => {}, 60000)";
    let beside = Beside::start(Command::new("node").args(["-e", script]));
    wait_for("node", || {
        let dump = dump_of(&beside);
        let thread = &dump["threads"][0];
        in_order(&functions(thread, &["native"]), &["uv_run", "_start"]).then_some(())
    });
}

#[test]
fn a_frame_pointer_is_found_where_it_was_saved() {
    let beside = Beside::start(&mut Command::new(victim::c("no_frame_pointer_known.c")));
    wait_for("the whole stack", || {
        let dump = dump_of(&beside);
        let thread = &dump["threads"][0];
        let notes = thread["notes"].to_string();
        let found = functions(thread, &["native"]);
        let is_whole = in_order(&found, &["sleeps", "between", "main", "_start"]);
        (is_whole && notes.contains("looked for on the stack")).then_some(())
    });
    let dump = dump(&["--stop", &beside.pid().to_string()]);
    assert_eq!(dump["threads"][0]["notes"], serde_json::json!([]));
}

#[test]
fn what_holds_a_process_is_said() {
    let beside = Beside::silent(Command::new("sleep").arg("60"));
    // Not while it is loaded: there is no stack to speak of yet.
    wait_for("a sleep", || {
        let dump = dump_of(&beside);
        (dump["threads"][0]["call"]["name"] == "clock_nanosleep").then_some(())
    });
    beside.signal(libc::SIGSTOP);
    let problem = wait_for("a stopped process", || {
        let dump = dump_of(&beside);
        let thread = &dump["threads"][0];
        let problem = dump["problems"][0].as_str()?.to_owned();
        (thread["state"] == "T" && functions(thread, &["native"]).contains(&"_start"))
            .then_some(problem)
    });
    assert!(problem.contains("kill -CONT"), "{problem}");
    assert_eq!(
        dump(&["--stop", &beside.pid().to_string()])["threads"][0]["state"],
        "T"
    );
    let status = fs::read_to_string(format!("/proc/{}/status", beside.pid())).unwrap();
    assert!(status.contains("State:\tT (stopped)"), "{status}");

    // A child that nobody waits for.
    let parent = Beside::start(&mut shell::<&str>("sh -c 'echo $$' & exec sleep 60", []));
    let children = format!("/proc/{0}/task/{0}/children", parent.pid());
    let problem = wait_for("a zombie", || {
        let child = fs::read_to_string(&children).ok()?;
        let dump = dump(&[child.trim()]);
        Some(dump["problems"][0].as_str()?.to_owned())
    });
    let waits = format!("process {} (sleep), which has not waited", parent.pid());
    assert!(
        problem.starts_with("the process has ended") && problem.contains(&waits),
        "{problem}"
    );
}

#[test]
fn who_may_not_be_looked_at_is_refused_with_the_remedy() {
    let run = |command: &mut Command| {
        let result = output(command);
        (result.status.code(), text(&result.stderr))
    };
    let (status, said) = run(Command::new(rsunwind()).args(["dump", &i32::MAX.to_string()]));
    assert!(
        status == Some(2) && said.contains("no process has the number 2147483647"),
        "{said}"
    );
    let (status, said) = run(Command::new(rsunwind()).args(["dump", "nobody-has-this-name"]));
    assert!(
        status == Some(2) && said.contains("no process is called nobody-has-this-name"),
        "{said}"
    );
    let (_directory, copies) = for_everybody(&[rsunwind()]);
    let of_root = Beside::silent(Command::new("/bin/sleep").arg("60"));
    // The tests run as root.
    let mut other = Command::new(&copies[0]);
    other
        .args(["dump", &of_root.pid().to_string()])
        .uid(65534)
        .gid(65534);
    let (status, said) = run(&mut other);
    assert!(
        status == Some(1)
            && said.contains("it belongs to user 0: run rsunwind as that user, or as root"),
        "{said}"
    );
}

#[test]
fn a_name_means_all_processes_that_have_it() {
    let (_directory, copies) = for_everybody(&["/bin/sleep".as_ref()]);
    let name = copies[0].with_file_name("two-of-them");
    fs::rename(&copies[0], &name).unwrap();
    let mut pids = [(); 2].map(|()| Beside::silent(Command::new(&name).arg("60")));
    pids.sort_by_key(Beside::pid);
    for command in ["dump", "doctor"] {
        let result = output(Command::new(rsunwind()).args([command, "two-of-them"]));
        let said = text(&result.stdout);
        let places = pids
            .each_ref()
            .map(|process| said.find(&format!("process {}", process.pid())));
        assert!(
            places[0].is_some() && places[0] < places[1],
            "{command}: {said}\n{}",
            text(&result.stderr)
        );
    }
}
