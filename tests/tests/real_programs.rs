//! Real programs do the same with and without us: output, errors, status, files.

use rsunwind_tests::run::{Outcome, Run};
use rsunwind_tests::victim;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A script that prepares its directory and one that is compared; both run by bash with fixed dates
/// and identity.
struct Case {
    name: &'static str,
    preparation: &'static str,
    script: &'static str,
}

fn shell(run: Run, directory: &Path, script: &str) -> Outcome {
    let date = "2020-01-01T00:00:00Z";
    run.args(["-c", script])
        .directory(directory)
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_DATE", date)
        .env("GIT_COMMITTER_DATE", date)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .input(b"3\n1\n2\n")
        .outcome()
}

fn contents(directory: &Path, into: &mut BTreeMap<String, Vec<u8>>, top: &Path) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            contents(&path, into, top);
        } else {
            let name = path.strip_prefix(top).unwrap().display().to_string();
            into.insert(name, fs::read(&path).unwrap_or_default());
        }
    }
}

/// Runs it both ways, in directories of the same name, one after the other; gives the profiled
/// outcome.
#[track_caller]
fn same(case: &Case, settings: &str) -> Outcome {
    let place = tempfile::tempdir().unwrap();
    let mut results = Vec::new();
    for profiled in [false, true] {
        let directory = place.path().join("work");
        fs::create_dir(&directory).unwrap();
        let prepared = shell(Run::plain("bash"), &directory, case.preparation);
        assert!(
            prepared.status.success(),
            "{}: {}",
            case.name,
            prepared.errors()
        );
        let run = if profiled {
            Run::profiled(settings, "bash")
        } else {
            Run::plain("bash")
        };
        let outcome = shell(run, &directory, case.script);
        let mut files = BTreeMap::new();
        contents(&directory, &mut files, &directory);
        results.push((outcome, files));
        fs::remove_dir_all(&directory).unwrap();
    }
    let (profiled, profiled_files) = results.pop().unwrap();
    let (plain, plain_files) = results.pop().unwrap();
    assert_eq!(profiled.errors(), plain.errors(), "{}", case.name);
    assert_eq!(profiled.text(), plain.text(), "{}", case.name);
    assert_eq!(profiled.status, plain.status, "{}", case.name);
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&profiled_files), names(&plain_files), "{}", case.name);
    for (name, bytes) in &plain_files {
        assert!(
            profiled_files[name] == *bytes,
            "{}: {name} differs",
            case.name
        );
    }
    profiled
}

#[track_caller]
fn check(case: &Case) {
    let outcome = same(case, "rate=4000,cost=1");
    assert!(
        outcome
            .recordings()
            .iter()
            .any(|recording| recording.samples().count() > 0),
        "{}",
        case.name
    );
}

#[test]
fn shells() {
    check(&Case {
        name: "bash",
        preparation: "true",
        script: "seq 200000 | sort -rn | awk '{s+=$1} END {print s}' | cat; sort; trap 'echo caught' USR1; kill -USR1 $$
            (exit 3); echo $?; (kill -TERM $BASHPID); echo $?; for i in 1 2 3; do sleep 0.01 & done; wait; echo $?
            printf '%s ' {1..20000} | wc -w; x=0; while ((x < 30000)); do ((x++)); done; echo $x
            echo error >&2; read -t 0.05 line < <(sleep 2); echo $?; LC_ALL=C.UTF-8 printf 'ä%5.2f\\n' 1.5; exit 41",
    });
}

#[test]
fn pythons() {
    check(&Case {
        name: "python",
        preparation: "true",
        script: "python3 -c '
import hashlib, json, os, signal, subprocess, sys, threading, time
def work(n):
    return sum(i * i % 7 for i in range(n))
results = []
threads = [threading.Thread(target=lambda n=n: results.append(work(50000 + n))) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(results), hashlib.sha256(b\"x\" * 10000000).hexdigest())
print(subprocess.run([sys.executable, \"-c\", \"import sys; print(sum(range(1000000))); sys.exit(4)\"], close_fds=True, capture_output=True))
print(subprocess.check_output(\"echo $0; exit 0\", shell=True))
signal.signal(signal.SIGALRM, lambda *_: print(\"alarm\"))
signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(0.2)
pid = os.fork()
if pid == 0:
    os._exit(work(10000) % 100)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
try:
    def deep(n): return deep(n + 1)
    deep(0)
except RecursionError as error: print(error)
open(\"out.json\", \"w\").write(json.dumps({str(i): i for i in range(20000)}))
print(1 / 0)
'; echo $?",
    });
}

#[test]
fn perls() {
    check(&Case {
        name: "perl",
        preparation: "true",
        script: "perl -e 'my %h; $h{$_ % 1000} .= chr(97 + $_ % 26) for 1..300000; print join(\",\", map { length $h{$_} } sort keys %h), \"\\n\";
            $SIG{ALRM} = sub { die \"alarm\\n\" }; eval { alarm 1; select(undef, undef, undef, 5) }; print $@;
            print `echo from shell`; open my $f, \">\", \"file\"; print $f \"text\\n\" x 10000; close $f; exit 9'; echo $?",
    });
}

#[test]
fn gits() {
    check(&Case {
        name: "git",
        preparation: "git init -q -b main . && git config user.name A && git config user.email a@b
            for i in $(seq 60); do seq $((i * 37)) $((i * 37 + 3000)) >file$((i % 7)); git add . && git commit -qm \"commit $i\"; done",
        script: "git -c gc.auto=0 repack -adfq --threads=1 && git gc -q --prune=now && git fsck --no-progress
            git log --stat | md5sum; git count-objects; git rev-list --all | wc -l; git checkout -q nonexistent; echo $?
            rm -rf .git/index",
    });
}

#[test]
fn compilers() {
    let case = Case {
        name: "gcc",
        preparation: "echo '#include <stdio.h>' >big.c
            for i in $(seq 150); do echo \"int f$i(int *a, int n) { int s = $i; for (int i = 0; i < n; i++) { if (a[i] % ($i + 3) == 1) s += a[i] * s; else s ^= a[n - i - 1]; } return s; }\"; done >>big.c",
        script: "gcc -O2 -c big.c -o big.o && nm big.o | wc -l; gcc -c missing.c; echo $?; echo 'int main( {' | gcc -x c -; echo $?",
    };
    let outcome = same(&case, "rate=1000");
    let mut weight = BTreeMap::new();
    for recording in outcome.recordings() {
        for ((key, _, _), thread) in &recording.threads {
            let process = recording
                .processes
                .iter()
                .find(|process| process.key == *key);
            let name = process.map_or("", |process| {
                process.executable.rsplit('/').next().unwrap_or("")
            });
            *weight.entry(name.to_owned()).or_insert(0) += thread.delivered();
        }
    }
    let (most, _) = weight.iter().max_by_key(|(_, weight)| **weight).unwrap();
    assert_eq!(most, "cc1", "{weight:?}");
}

#[test]
fn archives() {
    check(&Case {
        name: "tar and xz",
        preparation: "mkdir tree; for i in $(seq 12); do seq $((i * 1000)) $((i * 1000 + 60000)) >tree/file$i; done",
        script: "tar --sort=name --mtime=2020-01-01 --owner=0 --group=0 -cf - tree | xz -T2 --block-size=1MiB -3 >tree.tar.xz
            echo ${PIPESTATUS[@]}; xz -dc tree.tar.xz | tar -tf - | sort | md5sum; xz -dc -T2 tree.tar.xz | md5sum
            dd if=/dev/zero bs=1M count=60 2>/dev/null | md5sum; dd if=/dev/zero bs=4M count=10 2>&1 >/dev/null | head -2",
    });
}

#[test]
fn nodes() {
    check(&Case {
        name: "node",
        preparation: "true",
        script: "node -e '
const { Worker, isMainThread } = require(\"worker_threads\");
const { execFileSync } = require(\"child_process\");
let sum = 0;
for (let i = 0; i < 3e7; i++) sum = (sum + i * 7) % 1000003;
console.log(sum, execFileSync(\"echo\", [\"child\"]).toString().trim());
const worker = new Worker(\"require(`worker_threads`).parentPort.postMessage([...Array(100000).keys()].reduce((a, b) => a + b))\", { eval: true });
worker.on(\"message\", value => console.log(value));
require(\"fs\").writeFileSync(\"out\", Buffer.alloc(3000000, \"x\"));
process.on(\"exit\", code => { console.log(\"exit\", code); });
setTimeout(() => { console.error(\"late\"); process.exitCode = 6; }, 300);
'; echo $?",
    });
}

/// Valgrind names system calls of the program that it finds odd.
#[test]
fn valgrind() {
    same(
        &Case {
            name: "valgrind",
            preparation: "true",
            script: "valgrind -q bash -c 'i=0; while ((i < 3000)); do ((i++)); done; (seq $i | tail -1); exit 5'; echo $?",
        },
        "rate=4000,cost=1",
    );
}

#[test]
fn databases() {
    check(&Case {
        name: "sqlite in python",
        preparation: "true",
        script: "python3 -c '
import sqlite3
db = sqlite3.connect(\"file.db\")
db.execute(\"create table t (a integer primary key, b text)\")
with db: db.executemany(\"insert into t values (?, ?)\", ((i, str(i * 7919 % 10007)) for i in range(60000)))
print(db.execute(\"select count(*), sum(length(b)), max(b) from t where b like ?\", (\"%9%\",)).fetchall())
print(db.execute(\"select x.a from t x join t y on x.b = y.a order by y.b, x.a limit 3\").fetchall())
'",
    });
}

#[test]
fn exceptions() {
    let program = victim::cpp("cancelled.cpp");
    let plain = Run::plain(&program).outcome().quiet();
    let profiled = Run::profiled("rate=4000,cost=1", &program)
        .outcome()
        .quiet();
    assert_eq!(
        (profiled.text(), profiled.status),
        (plain.text(), plain.status)
    );
}
