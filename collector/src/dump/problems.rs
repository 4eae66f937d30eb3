//! What is wrong with a process that hangs: threads that wait for each other, for one that is gone,
//! for somebody who has stopped them.

use super::Thread;
use crate::processes::{self, Stat};
use crate::visible::visible;
use std::fs;

/// All of it, in sentences.
pub(super) fn find(pid: u32, threads: &[Thread]) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(whole(pid, threads));
    found.extend(circles(threads));
    found.extend(threads.iter().filter_map(of_thread));
    found
}

/// Of the whole process.
fn whole(pid: u32, threads: &[Thread]) -> Option<String> {
    let main = threads.iter().find(|thread| thread.task.tid == pid)?;
    let name = |pid: u32| {
        let name = processes::name(pid.cast_signed(), pid.cast_signed());
        visible(&String::from_utf8_lossy(&name)).into_owned()
    };
    match main.task.state.0 {
        'Z' if threads.len() > 1 => Some("its main thread has ended, others run on".to_owned()),
        'Z' => {
            let parent = Stat::read(pid).and_then(|stat| stat.parent()).unwrap_or(0);
            Some(format!(
                "the process has ended; what is left is for its parent, process {parent} ({}), which has not waited for it yet",
                name(parent)
            ))
        }
        'T' => Some(format!(
            "stopped by a signal (SIGSTOP, Ctrl-Z): kill -CONT {pid} lets it go on"
        )),
        't' => {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let tracer = status
                .lines()
                .find_map(|line| line.strip_prefix("TracerPid:"));
            let tracer = tracer
                .and_then(|number| number.trim().parse().ok())
                .unwrap_or(0);
            Some(format!(
                "stopped by a debugger, process {tracer} ({})",
                name(tracer)
            ))
        }
        _ if is_frozen(pid) => Some(
            "its cgroup is frozen: write 0 to its cgroup.freeze (docker unpause, systemctl thaw)"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Whether a cgroup (version 2) holds it.
fn is_frozen(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let events = group.map(|group| format!("/sys/fs/cgroup{group}/cgroup.events"));
    let events = events.and_then(|file| fs::read_to_string(file).ok());
    events.is_some_and(|events| events.lines().any(|line| line == "frozen 1"))
}

/// Threads of which each waits for the next.
fn circles(threads: &[Thread]) -> Vec<String> {
    let owner = |tid: u32| {
        let thread = threads.iter().find(|thread| thread.task.tid == tid)?;
        thread.stack.call.as_ref()?.owner
    };
    let mut found: Vec<Vec<u32>> = Vec::new();
    for thread in threads {
        let mut chain = vec![thread.task.tid];
        while let Some(next) = owner(chain[chain.len() - 1]) {
            if let Some(start) = chain.iter().position(|tid| *tid == next) {
                let circle = &chain[start..];
                let is_new = found.iter().all(|known| !known.contains(&circle[0]));
                found.extend(is_new.then(|| circle.to_vec()));
                break;
            }
            chain.push(next);
        }
    }
    let mut told = Vec::new();
    for circle in found {
        let steps: Vec<_> = circle
            .iter()
            .filter_map(|tid| {
                let thread = threads.iter().find(|thread| thread.task.tid == *tid)?;
                let what = thread.stack.call.as_ref()?.waits_for.as_ref()?;
                Some(format!(
                    "thread {tid} ({}) waits for {what}",
                    thread.task.name
                ))
            })
            .collect();
        told.push(format!("deadlock: {}", steps.join("; ")));
    }
    told
}

fn of_thread(thread: &Thread) -> Option<String> {
    let Thread { task, stack, .. } = thread;
    if task.state.0 == 'D' {
        return Some(format!(
            "thread {} ({}) waits in the kernel and cannot be woken or killed until that ends{}",
            task.tid,
            task.name,
            match task.wchan.is_empty() {
                true => String::new(),
                false => format!(" (in {})", visible(&task.wchan)),
            }
        ));
    }
    let waits_for = stack.call.as_ref()?.waits_for.as_ref()?;
    let is_in_vain = waits_for.ends_with("any more");
    is_in_vain.then(|| format!("thread {} ({}) waits for {waits_for}", task.tid, task.name))
}
