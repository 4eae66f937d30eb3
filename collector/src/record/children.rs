//! Fork children of processes that unwind themselves. Each has the library, which does nothing in
//! it; it is taken away and brought in anew, soon after the kernel's record of the fork was read.
//! Until then, and where it cannot be, children are copied. At the end nothing is left in any.

use crate::inside::{Inheritance, Inside, Prepared, Refusal, Settings, disinherit, has_room};
use crate::numbers::plural;
use crate::processes::{self, Stat};
use crate::visible::say;
use std::time::{Duration, Instant};

/// For so long it is tried to come in.
const PATIENCE: Duration = Duration::from_secs(2);
/// A look at children may take so long; what is left of them has its turn at the next.
const LOOK: Duration = Duration::from_millis(30);
/// For so long the library is taken away from those that have it at the end, all together.
const LEAVING: Duration = Duration::from_secs(10);

/// Those that are known and not recorded from inside (yet).
#[derive(Debug, Default)]
pub(super) struct Children {
    waiting: Vec<Child>,
    /// Where that cannot be, and why one of them.
    refused: Vec<u32>,
    why: Option<Refusal>,
}

#[derive(Debug)]
struct Child {
    pid: u32,
    since: Instant,
    /// What it had, once that is gone.
    had: Inheritance,
}

impl Children {
    /// These have begun.
    pub(super) fn add(&mut self, born: Vec<u32>) {
        let since = Instant::now();
        self.waiting.extend(born.into_iter().map(|pid| Child {
            pid,
            since,
            had: Inheritance::Shared,
        }));
    }

    /// Goes into those where that can be now. `inside`: who is recorded like that; `all`: whether
    /// threads with little room on their stacks are no reason to leave one out.
    pub(super) fn enter(
        &mut self,
        settings: &Settings,
        inside: impl Iterator<Item = u32>,
        all: bool,
    ) -> Vec<Inside> {
        let began = Instant::now();
        let mut others: Vec<u32> = inside.chain(self.pids()).collect();
        let mut entered = Vec::new();
        for mut child in std::mem::take(&mut self.waiting) {
            if began.elapsed() > LOOK {
                self.waiting.push(child);
                continue;
            }
            match child.enter(settings, &others, all) {
                Ok(Some(inside)) => entered.push(inside),
                Ok(None) if child.had == Inheritance::Shared => self.waiting.push(child),
                Ok(None) | Err(Refusal::Ended) => others.retain(|pid| *pid != child.pid),
                Err(_) if child.is_over() => others.retain(|pid| *pid != child.pid),
                Err(refusal) if is_for_now(&refusal) && child.since.elapsed() < PATIENCE => {
                    self.waiting.push(child);
                }
                Err(refusal) => {
                    self.refused.push(child.pid);
                    self.why = Some(refusal);
                }
            }
        }
        entered
    }

    /// What the recording is to say of those that were left out.
    pub(super) fn said(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        let children = plural(
            self.refused.len() as u64,
            "fork child is",
            "fork children are",
        );
        Some(format!(
            "{children} copied, not recorded from inside: {why}"
        ))
    }

    /// The library is taken away from all that still have it: from these, and from what the
    /// processes that were recorded from inside have forked meanwhile.
    pub(super) fn leave(mut self, born: Vec<u32>, inside: &[u32]) {
        self.add(born);
        let mut all: Vec<u32> = self.pids().chain(descendants(inside)).collect();
        all.sort_unstable();
        all.dedup();
        let began = Instant::now();
        let mut left: Vec<(u32, Refusal)> = Vec::new();
        for pid in &all {
            let patience = LEAVING.saturating_sub(began.elapsed()).min(PATIENCE);
            match disinherit(*pid, all.iter().copied(), patience) {
                Ok(_) | Err(Refusal::Ended) => {}
                Err(refusal) => left.push((*pid, refusal)),
            }
        }
        if let Some((pid, refusal)) = left.first() {
            let others = match left.len() - 1 {
                0 => String::new(),
                more => format!(" (and in {})", plural(more as u64, "other", "others")),
            };
            say(format_args!(
                "process {pid}, a fork child: our library stays in it{others}, and does nothing: {refusal}; the next record -p of it from inside takes it away"
            ));
        }
    }

    fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        let waiting = self.waiting.iter().map(|child| child.pid);
        waiting.chain(self.refused.iter().copied())
    }
}

impl Child {
    /// None if there is nothing to go into, or not yet.
    fn enter(
        &mut self,
        settings: &Settings,
        others: &[u32],
        all: bool,
    ) -> Result<Option<Inside>, Refusal> {
        if self.had == Inheritance::Shared {
            self.had = disinherit(self.pid, others.iter().copied(), Duration::ZERO)?;
        }
        if !self.had.is_of(self.pid) {
            return Ok(None);
        }
        if !all {
            has_room(self.pid)?;
        }
        let inside = Inside::enter(Prepared::new(self.pid)?.at_once(), settings)?;
        if !self.is_over() {
            return Ok(Some(inside));
        }
        // The kernel's record of its new program has that copied.
        inside.leave().map(|_| None)
    }

    /// Whether it has ended, or begun another program, since the library was taken from it.
    fn is_over(&self) -> bool {
        self.had != Inheritance::Shared && !self.had.is_of(self.pid)
    }
}

/// Whether it may be otherwise in a moment.
const fn is_for_now(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NobodyToStop | Refusal::Ptrace(_) | Refusal::Traced(_) | Refusal::Contested
    )
}

/// All that these have started, and what that has.
fn descendants(of: &[u32]) -> Vec<u32> {
    let all = processes::all().map(i32::cast_unsigned);
    let parents: Vec<(u32, u32)> = all
        .filter_map(|pid| Some((pid, Stat::read(pid)?.parent()?)))
        .collect();
    let (mut family, mut next) = (of.to_vec(), 0);
    while let Some(parent) = family.get(next).copied() {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        family.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    family.split_off(of.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_process_has_started_is_found() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'echo $$; read line; :'; :"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = shell.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        let inner: u32 = line.trim().parse().unwrap();
        assert_eq!(descendants(&[shell.id()]), [inner]);
        let own = descendants(&[std::process::id()]);
        assert!(own.contains(&shell.id()) && own.contains(&inner));
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
