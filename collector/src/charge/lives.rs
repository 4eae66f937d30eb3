//! Processes from their beginning to their end, through every exec, and who waited for whom.

use super::{Row, Stranger, sum};
use crate::recording::{Arming, Process, ProcessId, Recording};
use engine::wire::charge::ChildEnd;
use engine::wire::sample::Trigger;
use std::collections::{HashMap, HashSet};

/// What somebody who waited and a process at its own end may differ by, ns: each reads microseconds
/// of each child.
const SAME_NS: u64 = 1_000_000;

/// Who waits for processes whose parent has ended.
const INIT: u32 = 1;

/// One process.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// Its program runs, by time.
    pub(super) runs: Vec<ProcessId>,
    /// What the kernel charged it and the children that it waited for, if somebody waited for it,
    /// ns.
    pub(super) charged_ns: Option<u64>,
    /// Its end, as who waited for it was told, if that was a process of the recording.
    end: Option<ChildEnd>,
    /// Who that was.
    waited_by: Option<usize>,
    /// What the children were charged whose ends it was told as their parent, ns.
    pub(super) told_ns: u64,
    parent: Option<usize>,
    is_command: bool,
    /// Whether one of its threads was ever armed.
    pub(super) was_looked_at: bool,
    /// Whether its last program's stacks were copied: then nobody says whom it waited for.
    is_copied: bool,
    /// Whether its last program said nothing at its end: it was killed, or ended by a system call
    /// of its own, as Go's programs do, which wait for children by such calls, too. Or it was one
    /// that is not in the recording.
    is_silent: bool,
    /// Whether its last program in the recording called exec: the next one has no samples.
    pub(super) has_become_another: bool,
    place: usize,
}

impl Life {
    /// Its first program run.
    pub(super) fn first(&self) -> ProcessId {
        self.runs.first().copied().unwrap_or(ProcessId::new(0))
    }

    /// What its children were charged of whose ends it was told, ns.
    fn children_ns(&self, recording: &Recording) -> u64 {
        let runs = self.runs.iter();
        let ends = runs.filter_map(|run| recording.processes[run.index()].end);
        let at_end = ends.map(|end| end.children_ns).max();
        at_end.unwrap_or(0).max(self.told_ns)
    }

    /// Its last program run.
    pub(super) fn last(&self) -> ProcessId {
        self.runs.last().copied().unwrap_or(ProcessId::new(0))
    }
}

/// All of a recording.
#[derive(Debug)]
pub(super) struct Lives {
    pub(super) all: Vec<Life>,
    /// Children that somebody waited for and that are not in the recording.
    pub(super) strangers: Vec<Stranger>,
}

impl Lives {
    pub(super) fn of(recording: &Recording) -> Self {
        let (mut all, of_run) = group(recording);
        let by_pid = by_pid(recording, &all);
        let first = |life: &Life| &recording.processes[life.first().index()];
        for (index, life) in all.iter_mut().enumerate() {
            let parent = first(life).parent;
            let parent = parent.map(|parent| of_run[parent.index()]);
            life.parent = parent.filter(|parent| *parent != index);
        }
        for session in recording.sessions() {
            let named = by_pid.get(&session.pid).into_iter().flatten().copied();
            let named = named.filter(|life| !all[*life].is_command);
            let from_then = |life: &usize| {
                let key = first(&all[*life]).key;
                (key < session.start_ns, key)
            };
            if let Some(command) = named.min_by_key(from_then) {
                all[command].is_command = true;
                all[command].charged_ns = (session.charged_ns > 0).then_some(session.charged_ns);
            }
        }
        let mut strangers = Strangers::default();
        let threads = threads(recording);
        let is_thread = |pid| threads.contains(&pid) && !by_pid.contains_key(&pid);
        let (nameless, named): (Vec<_>, Vec<_>) = ends(recording, &of_run)
            .into_iter()
            .filter(|(_, _, child)| !is_thread(child.pid))
            .partition(|(_, _, child)| child.pid == 0);
        for (waiter, parent, child) in named {
            let may_be = |life: &usize| {
                let life = &all[*life];
                let is_new = life.end.is_none_or(|end| is_same(end, child));
                !life.is_command && is_new && first(life).key <= child.time_ns
            };
            let is_near = |life: &usize| {
                let life = &all[*life];
                (life.parent == Some(waiter), first(life).key)
            };
            let named = by_pid.get(&child.pid).into_iter().flatten().copied();
            let named = named.filter(may_be).max_by_key(is_near);
            let hidden = || hidden_child(recording, &all, waiter, child);
            let earlier = match named.or_else(hidden) {
                Some(life) => {
                    all[life].charged_ns = Some(child.charged_ns);
                    let earlier = all[life].end.replace(child);
                    earlier.zip(all[life].waited_by.replace(waiter))
                }
                None => strangers.add(parent, waiter, child),
            };
            // A tracer is told of the end before the parent, and is not charged with it.
            if let Some((end, tracer)) = earlier {
                let told_ns = &mut all[tracer].told_ns;
                *told_ns = told_ns.saturating_sub(end.charged_ns);
            }
            let told_ns = &mut all[waiter].told_ns;
            *told_ns = told_ns.saturating_add(child.charged_ns);
        }
        for (waiter, _, child) in nameless {
            if let Some(life) = only_child(recording, &all, waiter, child) {
                all[life].charged_ns = Some(child.charged_ns);
                all[life].waited_by = Some(waiter);
            }
            let told_ns = &mut all[waiter].told_ns;
            *told_ns = told_ns.saturating_add(child.charged_ns);
        }
        Self {
            all,
            strangers: strangers.all,
        }
    }

    /// What the kernel charged the process itself until its end, if somebody waited for it, ns.
    /// `rows`: what is known of each life.
    pub(super) fn own_ns(
        &self,
        recording: &Recording,
        rows: &[Vec<Row>],
        index: usize,
    ) -> Option<u64> {
        let life = &self.all[index];
        let both = life.charged_ns?;
        let children = self.children_ns(recording, rows, index);
        let own = both.saturating_sub(children);
        // A child of which nobody says whether it was waited for was not, where there is no room
        // for it.
        let most = both.saturating_sub(life.children_ns(recording));
        let said = sum(&rows[index]).min(most);
        Some(match life.is_copied {
            true => own.max(said),
            // One that was killed seldom waited otherwise than by libc, and its end costs, too.
            false if life.is_silent && own < said => most,
            false => own,
        })
    }

    /// What its children were charged that it waited for, ns: as it was told; of a program that is
    /// copied or said nothing at its end, also what is known of those for whom nobody else waited.
    pub(super) fn children_ns(
        &self,
        recording: &Recording,
        rows: &[Vec<Row>],
        index: usize,
    ) -> u64 {
        let (mut sum_ns, mut todo) = (0u64, vec![index]);
        // Each life has one parent, above which it is not: this ends. The bound is for recordings
        // that were made up.
        for _ in 0..self.all.len() {
            let Some(at) = todo.pop() else {
                break;
            };
            let life = &self.all[at];
            sum_ns = sum_ns.saturating_add(life.children_ns(recording));
            if !life.is_copied && !life.is_silent {
                continue;
            }
            let unseen = |child: &&Life| child.parent == Some(at) && child.charged_ns.is_none();
            for child in self.all.iter().filter(unseen) {
                sum_ns = sum_ns.saturating_add(sum(&rows[child.place]));
                todo.push(child.place);
            }
        }
        sum_ns
    }

    /// Lives for which a process without a recording has waited, as what that was charged has room
    /// for them, each with who waited for that one.
    pub(super) fn waited_for_by_strangers(
        &self,
        recording: &Recording,
        rows: &[Vec<Row>],
    ) -> HashMap<usize, usize> {
        let mut waited_for = HashMap::new();
        for stranger in &self.strangers {
            let is_waiter = |life: &&Life| life.runs.contains(&stranger.parent);
            let Some(waiter) = self.all.iter().find(is_waiter) else {
                continue;
            };
            let below = self.below(recording, stranger.pid);
            let below = below.filter(|life| self.all[*life].charged_ns.is_none());
            let below: Vec<usize> = below.collect();
            let known = below.iter().fold(0u64, |known, life| {
                let children = self.children_ns(recording, rows, *life);
                known.saturating_add(sum(&rows[*life]).saturating_add(children))
            });
            if known <= stranger.ns {
                waited_for.extend(below.into_iter().map(|life| (life, waiter.place)));
            }
        }
        waited_for
    }

    /// Whether what it used is in what the kernel charged the command. `by_strangers`: see
    /// [`Lives::waited_for_by_strangers`].
    pub(super) fn is_waited_for(
        &self,
        recording: &Recording,
        by_strangers: &HashMap<usize, usize>,
        index: usize,
    ) -> bool {
        let mut at = index;
        // This ends, too.
        for _ in 0..self.all.len() {
            let life = &self.all[at];
            if life.is_command {
                return true;
            }
            if let Some(waiter) = by_strangers.get(&at) {
                at = *waiter;
                continue;
            }
            let Some(above) = life.waited_by.or(life.parent) else {
                let process = &recording.processes[life.first().index()];
                return process.parent_pid != INIT;
            };
            if life.waited_by.is_none() && self.knows_all_its_children(recording, above) {
                return false;
            }
            at = above;
        }
        false
    }

    /// Whether what a process knew of its children at its end is what it had waited for one by one.
    fn knows_all_its_children(&self, recording: &Recording, index: usize) -> bool {
        let life = &self.all[index];
        // What a program said that it replaced is no word on what it waited for itself.
        let last = &recording.processes[life.last().index()];
        let at_end = last.end.filter(|_| !life.is_copied && !life.is_silent);
        at_end.is_some_and(|end| end.children_ns.abs_diff(life.told_ns) <= SAME_NS)
    }

    /// Lives in the recording whose parent has that pid and is not in it.
    pub(super) fn below<'a>(
        &'a self,
        recording: &'a Recording,
        pid: u32,
    ) -> impl Iterator<Item = usize> + 'a {
        let below = self.all.iter().filter(move |life| {
            let process = &recording.processes[life.first().index()];
            let parent = process
                .parent
                .map(|parent| &recording.processes[parent.index()]);
            process.parent_pid == pid && parent.is_none_or(|parent| parent.pid != pid)
        });
        below.map(|life| life.place)
    }
}

/// All ends of children, by time: who waited for it, in which program run, and what it was told.
fn ends(recording: &Recording, of_run: &[usize]) -> Vec<(usize, ProcessId, ChildEnd)> {
    let runs = recording.processes.iter().enumerate();
    let mut ends: Vec<_> = runs
        .flat_map(|(index, run)| {
            let waiter = of_run[index];
            let told = run.children.iter();
            told.map(move |child| (waiter, ProcessId::next_of(index), *child))
        })
        .collect();
    ends.sort_by_key(|(_, _, child)| child.time_ns);
    ends
}

/// The numbers of threads other than the first of their process. A tracer (`strace -f`, `gdb`)
/// waits for those, too. It is told what their whole process has used, and is charged nothing.
fn threads(recording: &Recording) -> HashSet<u32> {
    let others = recording.threads.iter().filter(|thread| {
        let process = &recording.processes[thread.process.index()];
        thread.tid != process.pid
    });
    others.map(|thread| thread.tid).collect()
}

/// Whether two who waited for a process were told of the same end. What it used may still grow a
/// little between the two.
fn is_same(one: ChildEnd, other: ChildEnd) -> bool {
    (one.pid, one.wait_status) == (other.pid, other.wait_status)
        && one.charged_ns.abs_diff(other.charged_ns) <= SAME_NS
}

/// Children that somebody waited for and that are not in the recording, each with its end and who
/// waited.
#[derive(Default)]
struct Strangers {
    all: Vec<Stranger>,
    last_of_pid: HashMap<u32, (usize, usize, ChildEnd)>,
}

impl Strangers {
    /// Adds one; gives the end that a tracer was told before its parent, if there was one.
    fn add(
        &mut self,
        parent: ProcessId,
        waiter: usize,
        end: ChildEnd,
    ) -> Option<(ChildEnd, usize)> {
        let stranger = Stranger {
            pid: end.pid,
            parent,
            ns: end.charged_ns,
            refused: end.refused,
        };
        let known = self.last_of_pid.get_mut(&end.pid);
        // Nobody is told twice of one end.
        let known = known.filter(|(_, by, last)| *by != waiter && is_same(*last, end));
        if let Some((place, by, last)) = known {
            let refused = self.all[*place].refused.max(stranger.refused);
            self.all[*place] = Stranger {
                refused,
                ..stranger
            };
            let earlier = (*last, *by);
            (*by, *last) = (waiter, end);
            return Some(earlier);
        }
        self.last_of_pid
            .insert(end.pid, (self.all.len(), waiter, end));
        self.all.push(stranger);
        None
    }
}

/// The one child that libc can have waited for itself at that time, if there is one and no other.
fn only_child(
    recording: &Recording,
    all: &[Life],
    waiter: usize,
    waited: ChildEnd,
) -> Option<usize> {
    let run = |id: &ProcessId| &recording.processes[id.index()];
    let window = waited.since_ns..=waited.time_ns;
    let may_be = |life: &&Life| {
        let ends = life.runs.last().and_then(|id| run(id).end);
        life.parent == Some(waiter)
            && life.charged_ns.is_none()
            && window.contains(&run(&life.first()).key)
            && ends.is_none_or(|end| end.time_ns <= waited.time_ns)
    };
    let mut candidates = all.iter().filter(may_be);
    let first = candidates.next()?;
    candidates.next().is_none().then_some(first.place)
}

/// The first process of a PID namespace, which does not know the number by which its parent waited
/// for it: its own /proc is of that namespace, in which it has no parent. Of several the one that
/// ended last.
fn hidden_child(
    recording: &Recording,
    all: &[Life],
    waiter: usize,
    waited: ChildEnd,
) -> Option<usize> {
    let run = |id: ProcessId| &recording.processes[id.index()];
    let outside = run(all[waiter].last()).pid_namespace;
    let may_be = |life: &&Life| {
        let process = run(life.first());
        let inside = process.pid_namespace;
        process.parent_pid == 0
            && life.parent.is_none_or(|parent| parent == waiter)
            && life.charged_ns.is_none()
            && inside != 0
            && inside != outside
            && process.ns_pids.len() < 2
            && process.key <= waited.time_ns
            && run(life.last())
                .end
                .is_none_or(|end| end.time_ns <= waited.time_ns)
    };
    let ended_ns = |life: &&Life| run(life.last()).end.map_or(0, |end| end.time_ns);
    let child = all.iter().filter(may_be).max_by_key(ended_ns);
    child.map(|life| life.place)
}

/// Program runs of one process belong together: the same pid, the same start. Gives for each run
/// the place of its life.
fn group(recording: &Recording) -> (Vec<Life>, Vec<usize>) {
    let mut order: Vec<usize> = (0..recording.processes.len()).collect();
    order.sort_by_key(|index| recording.processes[*index].key);
    let mut all: Vec<Life> = Vec::new();
    let mut of_run = vec![0; order.len()];
    let mut known: HashMap<(u32, u64), usize> = HashMap::new();
    for index in order {
        let process = &recording.processes[index];
        let name = (process.pid, process.start_ticks);
        let place = *known.entry(name).or_insert_with(|| {
            all.push(Life {
                place: all.len(),
                ..Life::default()
            });
            all.len() - 1
        });
        all[place].runs.push(ProcessId::next_of(index));
        of_run[index] = place;
    }
    for life in &mut all {
        let last = &recording.processes[life.last().index()];
        life.has_become_another = last.became().is_some();
        life.is_silent = last.end.is_none() || life.has_become_another;
    }
    for thread in &recording.threads {
        let life = &mut all[of_run[thread.process.index()]];
        life.was_looked_at |= !thread.armings.is_empty();
        // Who unwinds itself does so at a signal.
        let is_copied = |arming: &Arming| arming.signal == 0 && arming.trigger != Trigger::None;
        life.is_copied |= life.last() == thread.process && thread.armings.iter().any(is_copied);
    }
    (all, of_run)
}

/// Lives by every pid that they have, in whichever namespace.
fn by_pid(recording: &Recording, all: &[Life]) -> HashMap<u32, Vec<usize>> {
    let mut by_pid: HashMap<u32, Vec<usize>> = HashMap::new();
    for (place, life) in all.iter().enumerate() {
        let process: &Process = &recording.processes[life.first().index()];
        let mut pids = process.ns_pids.clone();
        pids.push(process.pid);
        pids.sort_unstable();
        pids.dedup();
        for pid in pids {
            by_pid.entry(pid).or_default().push(place);
        }
    }
    by_pid
}
