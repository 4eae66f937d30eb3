//! What the machine lets this user do.

use super::finding::Finding;
use crate::kept;
use crate::perf_event::{self, ANY_PROCESSOR, THIS_THREAD};
use crate::seccomp;
use engine::perf_event::{Attributes, kind, software};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::geteuid;
use std::fs;

/// Locked memory below which threads share timers rather than rings of their own, bytes: a hundred
/// threads' worth.
const LITTLE_MEMORY: u64 = 8 << 20;
/// A folder with less room than this is soon full, bytes.
const LITTLE_ROOM: u64 = 64 << 20;
/// The rate that people ask for at the most, Hz.
const HIGH_RATE: u64 = 10_000;

/// All of it, the most important first.
pub(super) fn findings() -> Vec<Finding> {
    vec![
        samples(),
        locked_memory(),
        rate(),
        kernel_names(),
        sleeping_stacks(),
        session_folder(),
        hardware_counters(),
    ]
}

/// A number in a file of `/proc/sys`.
fn setting(name: &str) -> Option<i64> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn opens(attributes: &Attributes) -> Result<(), Errno> {
    perf_event::open(attributes, THIS_THREAD, ANY_PROCESSOR).map(drop)
}

/// The events that threads are sampled by.
fn samples() -> Finding {
    const SUBJECT: &str = "samples";
    if seccomp::is_in_force() {
        return Finding::less(
            SUBJECT,
            "by CPU timers only, without kernel stacks: a seccomp filter is in force here, which might kill who opens perf events",
            "run outside of it, or in a container whose seccomp profile has perf_event_open, and --trigger perf",
        );
    }
    let event = |kernel| {
        opens(&Attributes::of_thread(
            kind::SOFTWARE,
            software::TASK_CLOCK,
            1_000_000,
            kernel,
        ))
    };
    let level = setting("kernel.perf_event_paranoid");
    let level = level.map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    match (event(true), event(false)) {
        (Ok(()), _) => Finding::ok(SUBJECT, "by perf events, in user and kernel mode"),
        (Err(_), Ok(())) => Finding::less(
            SUBJECT,
            format!(
                "by perf events, in user mode only (kernel.perf_event_paranoid is {level}): time in the kernel has no stacks"
            ),
            "sudo sysctl kernel.perf_event_paranoid=1, or sudo setcap cap_perfmon+ep on rsunwind",
        ),
        (Err(_), Err(error)) => Finding::less(
            SUBJECT,
            format!(
                "by CPU timers only, bound to the kernel's tick, without kernel stacks (perf events: {}; kernel.perf_event_paranoid is {level})",
                error.desc()
            ),
            "sudo sysctl kernel.perf_event_paranoid=1; in a container, a seccomp profile that has perf_event_open",
        ),
    }
}

/// What the rings of an ordinary user's threads lie in.
fn locked_memory() -> Finding {
    const SUBJECT: &str = "locked memory";
    if geteuid().is_root() {
        return Finding::ok(SUBJECT, "as much as is needed, for root");
    }
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
    let per_processor = setting("kernel.perf_event_mlock_kb").unwrap_or(0);
    let says = match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => format!(
            "{} KiB for the rings of all threads, and {per_processor} KiB a processor",
            limit >> 10
        ),
    };
    match limit < LITTLE_MEMORY {
        true => Finding::less(
            SUBJECT,
            format!("{says}: of many threads, those beyond are sampled by timers"),
            "ulimit -l unlimited (or sudo sysctl kernel.perf_event_mlock_kb=65536)",
        ),
        false => Finding::ok(SUBJECT, says),
    }
}

fn rate() -> Finding {
    const SUBJECT: &str = "rate";
    let most =
        setting("kernel.perf_event_max_sample_rate").and_then(|most| u64::try_from(most).ok());
    match most {
        Some(most) if most < HIGH_RATE => Finding::less(
            SUBJECT,
            format!(
                "the kernel has lowered the rate of perf events to {most} Hz: above that it holds samples back"
            ),
            "sudo sysctl kernel.perf_event_max_sample_rate=100000",
        ),
        Some(most) => Finding::ok(SUBJECT, format!("up to {most} Hz")),
        None => Finding::no(
            SUBJECT,
            "this kernel has no perf events",
            "a kernel with CONFIG_PERF_EVENTS; until then threads are sampled by timers",
        ),
    }
}

fn kernel_names() -> Finding {
    const SUBJECT: &str = "kernel names";
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut addresses = symbols.lines().filter_map(|line| line.split(' ').next());
    match addresses.any(|address| address.bytes().any(|digit| digit != b'0')) {
        true => Finding::ok(SUBJECT, "from /proc/kallsyms"),
        false => Finding::less(
            SUBJECT,
            "kernel functions are addresses: /proc/kallsyms may not be read",
            "sudo sysctl kernel.kptr_restrict=0",
        ),
    }
}

/// Stacks of threads that sleep when a recording ends are read from outside.
fn sleeping_stacks() -> Finding {
    const SUBJECT: &str = "sleeping threads";
    let scope = setting("kernel.yama.ptrace_scope").unwrap_or(0);
    match scope >= 2 && !geteuid().is_root() {
        true => Finding::less(
            SUBJECT,
            format!(
                "their stacks may not be read from outside (kernel.yama.ptrace_scope is {scope})"
            ),
            "sudo sysctl kernel.yama.ptrace_scope=1",
        ),
        false => Finding::ok(SUBJECT, "their stacks may be read from outside"),
    }
}

fn session_folder() -> Finding {
    const SUBJECT: &str = "session folder";
    let places = kept::places();
    let is_writable = |place: &&std::path::PathBuf| tempfile::tempdir_in(place).is_ok();
    let Some(place) = places.iter().find(is_writable) else {
        return Finding::no(
            SUBJECT,
            "none can be made: /dev/shm and /tmp cannot be written",
            "set TMPDIR to a folder that can",
        );
    };
    let room = kept::room_in(place);
    let says = format!("{}, {} MiB free", place.display(), room >> 20);
    match room < LITTLE_ROOM {
        true => Finding::less(
            SUBJECT,
            format!("{says}: samples are lost when it is full"),
            "free some of it; in a container, give /dev/shm more (--shm-size=256m)",
        ),
        false => Finding::ok(SUBJECT, says),
    }
}

/// For `-e cycles` and its like; CPU time needs none.
fn hardware_counters() -> Finding {
    const SUBJECT: &str = "counters";
    match opens(&Attributes::of_thread(kind::HARDWARE, 0, 1_000_000, false)) {
        Ok(()) => Finding::ok(SUBJECT, "the processor's, for -e cycles and others"),
        Err(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => Finding::less(
            SUBJECT,
            "none of the processor's, as in most virtual machines: -e cycles is refused; CPU time needs none",
            "",
        ),
        Err(error) => Finding::less(
            SUBJECT,
            format!("those of the processor may not be used: {}", error.desc()),
            "sudo sysctl kernel.perf_event_paranoid=1",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn what_is_found_agrees_with_the_kernel() {
        let found = samples();
        let attributes =
            Attributes::of_thread(kind::SOFTWARE, software::TASK_CLOCK, 1_000_000, true);
        let works = !seccomp::is_in_force() && opens(&attributes).is_ok();
        assert_eq!(found.state == State::Ok, works, "{found}");
        for finding in findings() {
            let explained = finding.state == State::Ok || finding.cure.is_some();
            assert!(explained || finding.subject == "counters", "{finding}");
        }
    }

    #[test]
    fn a_setting_is_a_number_in_a_file() {
        assert!(setting("kernel.pid_max").is_some_and(|most| most > 300));
        assert_eq!(setting("kernel.no_such_thing"), None);
    }
}
