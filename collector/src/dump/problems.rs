//! What is wrong with a process that hangs: threads that wait for each other, for one that is gone,
//! for somebody who has stopped them.

use super::Thread;
use crate::processes::{self, Stat};
use crate::visible::visible;
use std::collections::hash_map::{Entry, HashMap};
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
    let of_tid: HashMap<u32, &Thread> = threads.iter().map(|t| (t.task.tid, t)).collect();
    let owner = |tid: u32| of_tid.get(&tid)?.stack.call.as_ref()?.owner;
    let mut found: Vec<Vec<u32>> = Vec::new();
    // Where each thread that was met lies in the chain in which it was.
    let mut met: HashMap<u32, (usize, usize)> = HashMap::default();
    for (number, thread) in threads.iter().enumerate() {
        let (mut chain, mut next) = (Vec::new(), Some(thread.task.tid));
        while let Some(tid) = next {
            match met.entry(tid) {
                Entry::Vacant(entry) => entry.insert((number, chain.len())),
                Entry::Occupied(entry) => {
                    let (of, start) = *entry.get();
                    found.extend((of == number).then(|| chain[start..].to_vec()));
                    break;
                }
            };
            chain.push(tid);
            next = owner(tid);
        }
    }
    let mut told = Vec::new();
    for circle in found {
        let steps: Vec<_> = circle
            .iter()
            .filter_map(|tid| {
                let thread = of_tid.get(tid)?;
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

#[cfg(test)]
mod tests {
    use super::super::call::Decoded;
    use super::super::stack::ThreadStack;
    use super::super::task::{State, Task};
    use super::*;

    /// A thread that waits for another.
    fn thread(tid: u32, owner: Option<u32>) -> Thread {
        let call = Decoded {
            waits_for: Some("a mutex".to_owned()),
            owner,
            ..Decoded::default()
        };
        Thread {
            task: Task {
                tid,
                inner_tid: tid,
                name: "t".to_owned(),
                state: State('S'),
                wchan: String::new(),
            },
            stack: ThreadStack {
                call: Some(call),
                ..ThreadStack::default()
            },
            frames: Vec::new(),
        }
    }

    #[test]
    fn circles_are_told_once_whoever_else_waits_for_them() {
        let owners = [(1, 2), (2, 3), (3, 2), (4, 3), (5, 5), (6, 7)];
        let threads = owners.map(|(tid, owner)| thread(tid, Some(owner)));
        let expected = [
            "deadlock: thread 2 (t) waits for a mutex; thread 3 (t) waits for a mutex",
            "deadlock: thread 5 (t) waits for a mutex",
        ];
        assert_eq!(circles(&threads), expected);
    }

    #[test]
    fn a_long_chain_is_walked_once() {
        // Each thread's chain walked to its end would be 10^10 steps.
        let chain = (0..100_000).map(|tid| thread(tid, Some(tid + 1)));
        assert!(circles(&chain.collect::<Vec<_>>()).is_empty());
    }
}
