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

/// Links each process to the one it came from. A parent is always older, so there are no cycles.
pub(super) fn find_parents(processes: &mut [Process]) {
    let mut by_pid: HashMap<u32, Vec<(u64, ProcessId)>> = HashMap::default();
    for (index, process) in processes.iter().enumerate() {
        let entry = (process.key, ProcessId::next_of(index));
        by_pid.entry(process.pid).or_default().push(entry);
    }
    for list in by_pid.values_mut() {
        list.sort_unstable();
    }
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
