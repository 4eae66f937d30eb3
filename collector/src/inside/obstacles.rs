//! What forbids to bring anything into a process, as far as it can be seen without touching it.

use super::Refusal;
use crate::gentle::is_filtered;
use crate::processes::has_signal;
use crate::processes::{self, Stat};
use crate::whereabouts::Whereabouts;
use nix::libc;
use std::fs;
use std::io::Read;

/// Whether `auto` would go into a process, as far as can be seen without touching it.
///
/// # Errors
/// The first obstacle.
pub(crate) fn all_that_is_seen(pid: u32) -> Result<(), Refusal> {
    look(pid)?;
    own_handler(pid)?;
    ignored_trap(pid)?;
    has_room(pid)
}

/// Looks for obstacles.
///
/// # Errors
/// The first that is found.
pub(super) fn look(pid: u32) -> Result<(), Refusal> {
    let stat = Stat::read(pid).ok_or(Refusal::Ended)?;
    // Who traces it may hold it.
    if let Some(tracer) = tracer(pid) {
        return Err(Refusal::Traced(tracer));
    }
    match stat.state() {
        'Z' | 'X' => return Err(Refusal::Zombie),
        'T' | 't' => return Err(Refusal::Stopped),
        _ => {}
    }
    let threads = processes::threads(pid.cast_signed());
    let mut threads = threads.into_iter().map(i32::cast_unsigned);
    if threads.any(|tid| is_filtered(pid, tid)) {
        return Err(Refusal::Filtered);
    }
    if !is_of_64_bits(pid) {
        return Err(Refusal::Machine);
    }
    if has_shadow_stacks(&status(pid)) {
        return Err(Refusal::ShadowStacks);
    }
    let mappings = processes::mappings(pid.cast_signed());
    if mappings.iter().any(processes::is_library) {
        return Err(Refusal::Preloaded);
    }
    Ok(())
}

/// Looks whether the program has a handler for SIGURG: its signals are told from ours, but come
/// with our flags, and what it saved of ours it could set again.
///
/// # Errors
/// [`Refusal::OwnHandler`].
pub(super) fn own_handler(pid: u32) -> Result<(), Refusal> {
    match has(pid, "SigCgt:", libc::SIGURG) {
        true => Err(Refusal::OwnHandler),
        false => Ok(()),
    }
}

/// Looks whether the program ignores SIGTRAP: the kernel sets the default action at a step.
///
/// # Errors
/// [`Refusal::IgnoresTrap`].
pub(super) fn ignored_trap(pid: u32) -> Result<(), Refusal> {
    match has(pid, "SigIgn:", libc::SIGTRAP) {
        true => Err(Refusal::IgnoresTrap),
        false => Ok(()),
    }
}

/// Bytes below the stack pointer: the kernel's frame of a signal takes 12 KB at most.
const ROOM: u64 = 16 << 10;
/// With less than that when it sleeps, a thread gets no signals: it may go deeper than that.
pub(super) const AMPLE_ROOM: u64 = 64 << 10;

/// Looks whether each thread that sleeps has room for a signal on its stack. Of those that run it
/// cannot be told.
///
/// # Errors
/// [`Refusal::Narrow`].
pub(crate) fn has_room(pid: u32) -> Result<(), Refusal> {
    match narrow(pid, &processes::threads(pid.cast_signed()), ROOM).is_empty() {
        true => Ok(()),
        false => Err(Refusal::Narrow),
    }
}

/// Those of some threads that sleep with less room than that on their stacks, bytes. Node has such
/// a thread, with a stack of 32 KB, in each process.
pub(super) fn narrow(pid: u32, tids: &[i32], room: u64) -> Vec<i32> {
    if tids.is_empty() {
        return Vec::new();
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let ranges = maps.lines().filter_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let end = rest.split(' ').next()?;
        let [start, end] = [start, end].map(|word| u64::from_str_radix(word, 16).ok());
        // That one grows.
        let room = if line.ends_with("[stack]") { 0 } else { room };
        Some((start?.saturating_add(room), end?))
    });
    let ranges: Vec<_> = ranges.collect();
    let is_narrow = |tid: &i32| match Whereabouts::of(pid, tid.cast_unsigned()) {
        Whereabouts::Asleep { sp, .. } => {
            let mut ranges = ranges.iter();
            !ranges.any(|(start, end)| (*start..*end).contains(&sp))
        }
        _ => false,
    };
    tids.iter().copied().filter(is_narrow).collect()
}

/// Whether a set of signals has one; one that cannot be read has.
fn has(pid: u32, set: &str, signal: i32) -> bool {
    has_signal(&status(pid), set, signal)
}

fn status(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

/// Threads have them from the start of the program on, or never.
fn has_shadow_stacks(status: &str) -> bool {
    let features = status
        .lines()
        .find_map(|line| line.strip_prefix("x86_Thread_features:"));
    features.is_some_and(|features| features.split_ascii_whitespace().any(|one| one == "shstk"))
}

fn tracer(pid: u32) -> Option<u32> {
    let status = status(pid);
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|tracer| *tracer != 0)
}

/// An ELF file of x86-64.
fn is_of_64_bits(pid: u32) -> bool {
    const START: [u8; 5] = [0x7f, b'E', b'L', b'F', 2];
    const X86_64: [u8; 2] = [62, 0];
    let mut head = [0; 20];
    let file = fs::File::open(format!("/proc/{pid}/exe"));
    let read = file.and_then(|mut file| file.read_exact(&mut head));
    cfg!(target_arch = "x86_64")
        && read.is_ok()
        && head.starts_with(&START)
        && head.ends_with(&X86_64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn signals_that_the_program_uses_are_refused() {
        let script = "import os, signal, sys\n\
            signal.signal(signal.SIGURG, lambda *_: None)\n\
            signal.signal(signal.SIGTRAP, signal.SIG_IGN)\n\
            print(flush=True); sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut line)
            .unwrap();
        let pid = child.id();
        assert!(matches!(own_handler(pid), Err(Refusal::OwnHandler)));
        assert!(matches!(ignored_trap(pid), Err(Refusal::IgnoresTrap)));
        drop(child.stdin.take());
        child.wait().unwrap();
        let own = std::process::id();
        assert!(own_handler(own).is_ok() && ignored_trap(own).is_ok());
    }

    #[test]
    fn little_room_on_a_stack_is_seen() {
        use std::io::{Read as _, pipe};
        let own = std::process::id();
        for (size, has) in [(1 << 20, true), (32 << 10, false)] {
            let (mut reader, writer) = pipe().unwrap();
            let (send, tids) = std::sync::mpsc::channel();
            let waits = std::thread::Builder::new().stack_size(size);
            let waits = waits.spawn(move || {
                send.send(nix::unistd::gettid().as_raw()).unwrap();
                reader.read(&mut [0])
            });
            let waits = waits.unwrap();
            let tid = tids.recv().unwrap();
            let is_asleep = || {
                let there = Whereabouts::of(own, tid.cast_unsigned());
                matches!(there, Whereabouts::Asleep { call: Some(call), .. }
                    if call.number == libc::SYS_read)
            };
            while !is_asleep() {
                std::thread::yield_now();
            }
            assert_eq!(narrow(own, &[tid], AMPLE_ROOM).is_empty(), has, "{size}");
            assert!(narrow(own, &[tid], ROOM).is_empty(), "{size}");
            assert_eq!(narrow(own, &[tid], 2 << 20), [tid], "{size}");
            drop(writer);
            waits.join().unwrap().unwrap();
        }
    }

    #[test]
    fn shadow_stacks_are_seen() {
        let has = |features: &str| {
            let status = format!("Seccomp:\t0\nx86_Thread_features:\t{features}\n");
            has_shadow_stacks(&format!(
                "{status}x86_Thread_features_locked:\tshstk wrss\n"
            ))
        };
        assert!(has("shstk ") && has("wrss shstk"));
        assert!(!has("") && !has("wrss") && !has_shadow_stacks("Name:\tshstk\n"));
    }

    #[test]
    fn who_is_traced_is_refused() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        // As a debugger does.
        let thread = nix::unistd::Pid::from_raw(pid.cast_signed());
        nix::sys::ptrace::seize(thread, nix::sys::ptrace::Options::empty()).unwrap();
        let found = look(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        let own = nix::unistd::gettid().as_raw().cast_unsigned();
        let is_own = matches!(found, Err(Refusal::Traced(by)) if by == own);
        assert!(is_own, "{found:?}");
    }

    #[test]
    fn who_is_stopped_or_gone_is_refused() {
        assert!(matches!(look(u32::MAX >> 1), Err(Refusal::Ended)));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let kill = |name: &str| {
            let sent = Command::new("kill")
                .args(["-s", name, &pid.to_string()])
                .status();
            assert!(sent.unwrap().success());
        };
        let wait_for = |state: char| {
            while Stat::read(pid).unwrap().state() != state {
                std::thread::yield_now();
            }
        };
        assert!(look(pid).is_ok());
        kill("STOP");
        wait_for('T');
        assert!(matches!(look(pid), Err(Refusal::Stopped)));
        kill("KILL");
        wait_for('Z');
        assert!(matches!(look(pid), Err(Refusal::Zombie)));
        child.wait().unwrap();
    }
}
