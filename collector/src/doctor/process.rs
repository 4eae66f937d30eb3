//! What a recording of a process's program would have.
//!
//! Most of what is said here is what to expect when it is started again, by `record`, and unwinds
//! itself; one line is about recording it as it is (`record -p`).

use super::finding::Finding;
use crate::binary;
use crate::inside;
use crate::jit_options;
use crate::obstacle::Nature;
use crate::processes::{self, Mapping};
use crate::seccomp;
use crate::visible::Shown as _;
use nix::libc;
use object::{Object, ObjectSection as _};
use std::fs;
use std::path::{Path, PathBuf};

/// What interpreters and machines are told by: the beginning of a mapped file's name, its own name
/// for people, and what helps, in words.
const INTERPRETERS: [(&str, &str, &[&str]); 7] = [
    ("libpython3", "Python", &[]),
    ("python3", "Python", &[]),
    ("node", "JavaScript", &[]),
    (
        "libjvm.so",
        "Java",
        &["java", jit_options::JAVA_STACKS, jit_options::JAVA_NAMES],
    ),
    (
        "libcoreclr.so",
        ".NET",
        &[
            jit_options::DOTNET_NAMES,
            "in its environment names its functions",
        ],
    ),
    (
        "libluajit",
        "LuaJIT",
        &["-jp, or a plug-in (docs/interpreters.md)"],
    ),
    (
        "libruby",
        "Ruby",
        &["a plug-in (docs/interpreters.md); its C functions are shown"],
    ),
];

/// All of it.
pub(super) fn findings(pid: i32) -> Vec<Finding> {
    let mappings = processes::mappings(pid);
    if mappings.is_empty() {
        let cure = "run this as the same user or as root; a kernel thread or a process that has ended has no memory";
        return vec![Finding::no(
            "access",
            "its memory may not be looked at",
            cure,
        )];
    }
    let mut found = vec![as_it_is(pid), library(pid, &mappings), signal(pid)];
    found.extend(filter(pid));
    found.extend(namespace(pid));
    found.extend(names(pid));
    found.extend(interpreters(&mappings));
    found
}

/// How it would be recorded while it runs on.
fn as_it_is(pid: i32) -> Finding {
    const SUBJECT: &str = "record -p";
    match inside::all_that_is_seen(pid.cast_unsigned()) {
        Ok(()) => Finding::ok(
            SUBJECT,
            "by copies of its stacks; it can unwind itself, too (--how inside, which auto takes for Python and JavaScript)",
        ),
        Err(refusal) => Finding::less(
            SUBJECT,
            format!("by copies of its stacks; not from inside: {refusal}"),
            "start it by rsunwind record for stacks of any depth with the functions of its interpreter",
        ),
    }
}

/// The file that it runs, under a name by which it can be opened.
fn executable(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

fn library(pid: i32, mappings: &[Mapping]) -> Finding {
    const SUBJECT: &str = "library";
    if mappings.iter().any(processes::is_library) {
        return Finding::ok(
            SUBJECT,
            "it is being recorded, or was: the library is loaded",
        );
    }
    let file = executable(pid);
    let path = fs::read_link(&file).unwrap_or_else(|_| file.clone());
    match Nature::of(&file).obstacle {
        Some(mut obstacle) => {
            obstacle.path = path;
            Finding::less(
                SUBJECT,
                obstacle.to_string(),
                "as root, or where perf events may sample the kernel, its stacks are copied from outside",
            )
        }
        None => Finding::ok(
            SUBJECT,
            format!(
                "{} loads it when it is started by rsunwind record",
                path.shown()
            ),
        ),
    }
}

/// Which of the two signals the program leaves to us.
fn signal(pid: i32) -> Finding {
    const SUBJECT: &str = "signal";
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let is_caught = |signal: i32| caught & 1 << (signal - 1) != 0;
    match (is_caught(libc::SIGURG), is_caught(libc::SIGPROF)) {
        (false, _) => Finding::ok(SUBJECT, "SIGURG, which the program does not handle"),
        (true, false) => Finding::ok(SUBJECT, "SIGPROF, since the program handles SIGURG"),
        (true, true) => Finding::less(
            SUBJECT,
            "the program handles SIGURG and SIGPROF itself: those that it sends to single threads can be lost behind samples",
            "choose which it can spare: RSUNWIND=signal=prof or signal=urg",
        ),
    }
}

fn filter(pid: i32) -> Option<Finding> {
    seccomp::is_in_force_for(pid).then(|| {
        Finding::less(
            "seccomp",
            "it has put a filter on, which forbids some system calls: from then on what is asked of the kernel for a sample is kept to the least",
            "",
        )
    })
}

/// Whether it would reach the session's folder.
fn namespace(pid: i32) -> Option<Finding> {
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let root = fs::read_link(format!("/proc/{pid}/root")).ok();
    let elsewhere =
        of(&pid.to_string()) != of("self") || root.is_some_and(|root| root != Path::new("/"));
    elsewhere.then(|| {
        Finding::less(
            "namespace",
            "it lives in a container or a chroot: it cannot reach a session's folder that is outside",
            "run rsunwind inside, or share a folder with it and set TMPDIR to that",
        )
    })
}

/// Whether its own functions have names.
fn names(pid: i32) -> Option<Finding> {
    const SUBJECT: &str = "names";
    let content = binary::read(Path::new(&executable(pid))).ok()?;
    let file = object::File::parse(&*content).ok()?;
    let has = |name| {
        file.section_by_name_bytes(name)
            .is_some_and(|section| section.size() > 0)
    };
    let (symbols, lines) = (has(b".symtab"), has(b".debug_info") || has(b".debug_line"));
    Some(match (symbols, lines) {
        (_, true) => Finding::ok(
            SUBJECT,
            "the program has debug information: functions, inlined ones, lines",
        ),
        (true, false) => Finding::ok(
            SUBJECT,
            "the program has its symbols (build with -g for lines and inlined functions)",
        ),
        (false, false) => Finding::less(
            SUBJECT,
            "the program is stripped: functions that it does not export have no names, unless its debug file is installed",
            "install its -dbgsym or -debuginfo package, or name a folder with debug files: report --debug-dir DIR",
        ),
    })
}

fn interpreters(mappings: &[Mapping]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for mapping in mappings {
        let name = mapping
            .path
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        let known = INTERPRETERS
            .iter()
            .find(|(start, ..)| name.starts_with(start.as_bytes()));
        let Some((_, language, cure)) = known else {
            continue;
        };
        let finding = match cure.is_empty() {
            true => Finding::ok("language", format!("{language}: its functions are shown")),
            false => Finding::less("language", format!("{language}: found"), &cure.join(" ")),
        };
        if !found.contains(&finding) {
            found.push(finding);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn a_process_is_looked_at() {
        let found = findings(std::process::id().cast_signed());
        let of = |subject| found.iter().find(|finding| finding.subject == subject);
        assert!(of("record -p").is_some_and(|finding| finding.says.contains("copies")));
        assert!(of("library").is_some_and(|finding| finding.state == State::Ok));
        assert!(of("names").is_some_and(|finding| finding.state == State::Ok));
    }

    #[test]
    fn interpreters_are_told_by_what_is_mapped_once_each() {
        let mapping = |path: &str| Mapping {
            path: path.into(),
            ..Mapping::default()
        };
        let mapped = [
            "/usr/bin/python3.11",
            "/usr/lib/libpython3.11.so.1.0",
            "/lib/libjvm.so",
            "/bin/true",
        ];
        let found = interpreters(&mapped.map(mapping));
        let says: Vec<_> = found.iter().map(|finding| finding.says.as_str()).collect();
        assert_eq!(says, ["Python: its functions are shown", "Java: found"]);
    }
}
