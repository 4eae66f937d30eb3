//! `rsunwind agent` and a program for it.

use crate::command::{Bench, rsunwind, text, wait_for};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Two threads work for so many seconds of CPU time of the process; if that is asked for, one
/// begins others that end. The process publishes that its service is called "published", as
/// OpenTelemetry has it: field 1 of field 1, a key and a value.
const WORKS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static const char said[] = "\x0a\x1d\x0a\x1b\x0a\x0c" "service.name" "\x12\x0b\x0a\x09" "published";
static void publish(void) {
    struct { char signature[8]; uint32_t version, length; uint64_t at_ns; const char *payload; } *context;
    int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 4096)) return;
    context = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (context == MAP_FAILED) return;
    context->version = 2, context->length = sizeof said - 1, context->at_ns = 1, context->payload = said;
    memcpy(context->signature, "OTEL_CTX", 8);
}
static double limit;
static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
__attribute__((noinline)) static void work_a_while(void) {
    for (volatile int i = 0; i < 100000; i++);
}
static void *brief(void *p) { for (int i = 0; i < 20; i++) work_a_while(); return p; }
static void *work(void *p) {
    while (used() < limit) {
        pthread_t t;
        work_a_while();
        if (p) { pthread_create(&t, 0, brief, 0); pthread_join(t, 0); }
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t t;
    publish();
    limit = atof(argv[1]);
    pthread_create(&t, 0, work, argc > 2 ? &t : 0);
    work(0);
    pthread_join(t, 0);
    return 3;
}
"#;

/// Builds it.
#[must_use]
pub fn works(bench: &Bench) -> PathBuf {
    bench.compile("cc", &["-O1", "-pthread"], WORKS)
}

/// `rsunwind agent` without what the environment says of receivers.
#[must_use]
pub fn agent() -> Command {
    agent_below(&[])
}

/// The same, run by these words of a command.
#[must_use]
pub fn agent_below(words: &[&OsStr]) -> Command {
    let program = rsunwind();
    let mut words = words.iter().copied().chain([program.as_os_str()]);
    let mut command = Command::new(words.next().expect("the program at least"));
    command.args(words);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    command.arg("agent");
    command
}

/// Works for so many seconds of CPU time (and what else is said), waits for a line, and works on
/// for so many more.
///
/// # Panics
/// If no pipe can be made.
#[must_use]
pub fn in_two_parts(
    bench: &Bench,
    command: &mut Command,
    program: &Path,
    seconds: [&str; 2],
) -> File {
    const SCRIPT: &str = r#""$1" $2; read -r line < "$3"; exec "$1" "$4""#;
    let pipe = bench.path("pipe");
    let _ = fs::remove_file(&pipe);
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("it can be");
    let [before, after] = seconds.map(Path::new);
    command.args(["sh", "-c", SCRIPT, "sh"]);
    command.args([program, before, &pipe, after]);
    // Open for both, it waits for nobody.
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .open(pipe)
        .expect("it can be")
}

/// Runs the program under an agent for so many seconds of CPU time, until that is so, and then for
/// so many more. Gives the status, and what was said.
#[must_use]
pub fn run(
    bench: &Bench,
    agent: &mut Command,
    program: &Path,
    seconds: [&str; 2],
    until: impl Fn() -> bool,
) -> (Option<i32>, String) {
    let mut line = in_two_parts(bench, agent, program, seconds);
    let mut child = agent.stderr(Stdio::piped()).spawn().expect("it can be");
    wait_for("windows, or the agent's end", || {
        (until() || child.try_wait().expect("it is ours").is_some()).then_some(())
    });
    line.write_all(b"\n").expect("it can be");
    let out = child.wait_with_output().expect("it can be");
    let says = text(&out.stderr);
    assert!(until(), "the agent ended before that: {says}");
    (out.status.code(), says)
}
