//! Which program run came from which, and since when: what no single record says.

use super::ids::ProcessId;
use super::model::Process;
use crate::intern::HashMap;
use engine::wire::process::Origin;

/// Gives program runs whose start nobody could look at any more that of the one before or behind
/// them in the same process.
pub(super) fn find_starts(processes: &mut [Process]) {
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by_key(|index| processes[*index].key);
    let mut last_of_pid: HashMap<u32, usize> = HashMap::default();
    for index in order {
        let (pid, origin) = (processes[index].pid, processes[index].origin);
        let before = last_of_pid.insert(pid, index);
        if let Some(before) = before.filter(|_| origin == Origin::Exec) {
            let starts = (processes[before].start_ticks, processes[index].start_ticks);
            match starts {
                (known, 0) => processes[index].start_ticks = known,
                (0, known) => processes[before].start_ticks = known,
                _ => {}
            }
        }
    }
}

/// Links each process to the one it came from. There are no cycles.
pub(super) fn find_parents(processes: &mut [Process]) {
    let by_pid = by_pid(processes);
    find_earlier_parents(processes, &by_pid);
    find_later_parents(processes, &by_pid);
}

/// Program runs by pid, each with its key, in order.
fn by_pid(processes: &[Process]) -> HashMap<u32, Vec<(u64, ProcessId)>> {
    let mut by_pid: HashMap<u32, Vec<(u64, ProcessId)>> = HashMap::default();
    for (index, process) in processes.iter().enumerate() {
        let entry = (process.key, ProcessId::next_of(index));
        by_pid.entry(process.pid).or_default().push(entry);
    }
    for list in by_pid.values_mut() {
        list.sort_unstable();
    }
    by_pid
}

/// Links each process to the newest of its parent's program runs that began before it.
fn find_earlier_parents(processes: &mut [Process], by_pid: &HashMap<u32, Vec<(u64, ProcessId)>>) {
    let started: Vec<u64> = processes.iter().map(|p| p.start_ticks).collect();
    let by_key: HashMap<u64, ProcessId> = (by_pid.values().flatten()).copied().collect();
    let newest_before = |pid: u32, key: u64| {
        let list = by_pid.get(&pid)?;
        let behind = list.partition_point(|(found, _)| *found < key);
        list.get(behind.checked_sub(1)?).map(|(_, id)| *id)
    };
    for process in processes {
        let forked = process.parent_key != 0;
        // Its parent may have ended by then, and another one taken it over.
        let exact = || by_key.get(&process.parent_key).copied();
        let same_pid = || {
            let before = newest_before(process.pid, process.key);
            before.filter(|id| started[id.index()] == process.start_ticks)
        };
        let by_time = || newest_before(process.parent_pid, process.key);
        process.parent = if forked && process.parent_key < process.key {
            exact().or_else(by_time)
        } else {
            same_pid().or_else(by_time)
        };
    }
}

/// A fork child that had used next to nothing when it forked was told apart from its parent only
/// later: at its end, or at its first tick. Then it began after its own children did.
fn find_later_parents(processes: &mut [Process], by_pid: &HashMap<u32, Vec<(u64, ProcessId)>>) {
    for index in 0..processes.len() {
        let process = &processes[index];
        let is_found = process.parent.map(|parent| processes[parent.index()].pid);
        if process.parent_key == 0 || is_found == Some(process.parent_pid) {
            continue;
        }
        let may_be = |id: &ProcessId| {
            let other = &processes[id.index()];
            let began = 1..=process.start_ticks;
            other.key > process.key && other.parent_key != 0 && began.contains(&other.start_ticks)
        };
        let runs = by_pid.get(&process.parent_pid).into_iter().flatten();
        let later = runs.map(|(_, id)| *id).find(may_be);
        let later = later.filter(|later| !comes_from(processes, *later, index));
        if later.is_some() {
            processes[index].parent = later;
        }
    }
}

/// Whether a process is that one, or comes from it.
fn comes_from(processes: &[Process], from: ProcessId, index: usize) -> bool {
    let mut at = Some(from);
    while let Some(id) = at {
        if id.index() == index {
            return true;
        }
        at = processes[id.index()].parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, key: u64, parent: (u32, u64), start_ticks: u64) -> Process {
        let (parent_pid, parent_key) = parent;
        Process {
            pid,
            key,
            parent_pid,
            parent_key,
            start_ticks,
            origin: Origin::Fork,
            ..Process::default()
        }
    }

    /// What its child was told of it is the key of its own parent.
    #[test]
    fn a_parent_that_was_told_apart_after_its_child_is_its_parent() {
        let mut processes = [
            process(10, 100, (1, 0), 1),
            process(12, 200, (11, 100), 3),
            process(11, 900, (10, 100), 2),
        ];
        find_parents(&mut processes);
        let parents = processes.map(|process| process.parent.map(ProcessId::index));
        assert_eq!(parents, [None, Some(2), Some(0)]);
    }

    #[test]
    fn two_that_say_they_come_from_each_other_make_no_cycle() {
        let mut processes = [
            process(10, 100, (11, 50), 2),
            process(11, 900, (10, 100), 2),
        ];
        find_parents(&mut processes);
        let parents = processes.map(|process| process.parent.map(ProcessId::index));
        assert_eq!(parents, [None, Some(0)]);
    }
}
