//! What there is of services, part by part, as threads find it: ClickHouse makes sums while it
//! reads the stacks of those before, and while rows are taken.

use super::queries::{Queries, Range, Samples, Stacks};
use super::read::Error;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// Of so many ranges sums are made ahead of the stacks.
const AHEAD: usize = 1;

/// So many bytes of stacks are read at once, about.
const BYTES: u64 = 32 << 20;
/// The same of the only range there is: some are taken while others are read.
const BYTES_OF_ONE: u64 = 6 << 20;

/// What is found: of each range first stacks, then the samples that have them.
pub(super) enum Part {
    Stacks(Stacks),
    Samples(Samples),
}

/// Parts, range by range.
pub(super) struct Found {
    parts: Receiver<Result<Part, Error>>,
    threads: Vec<JoinHandle<()>>,
}

/// Begins to find them, and makes sums of so many ranges at once. Nobody waits for the threads if
/// something is wrong: that is said while some still wait for their answers.
pub(super) fn find(
    queries: &Arc<Queries>,
    ranges: Vec<Range>,
    at_once: usize,
    setting: &str,
) -> Found {
    let (found, parts) = sync_channel(1);
    let (made, sums) = sync_channel(AHEAD);
    let waiting = Arc::new(Mutex::new(ranges.into_iter().enumerate()));
    let summing = (0..at_once).map(|_| {
        let (queries, waiting) = (Arc::clone(queries), Arc::clone(&waiting));
        let setting = setting.to_owned();
        let (made, found) = (made.clone(), found.clone());
        thread::spawn(move || {
            let next = || waiting.lock().ok()?.next();
            for (place, range) in std::iter::from_fn(next) {
                let goes_on = match queries.sums(range, &setting) {
                    Ok(sums) => made.send((place, sums)).is_ok(),
                    Err(why) => {
                        _ = found.send(Err(why));
                        false
                    }
                };
                if !goes_on {
                    break;
                }
            }
        })
    });
    let mut threads: Vec<_> = summing.collect();
    let (queries, setting) = (Arc::clone(queries), setting.to_owned());
    let bytes = if at_once == 1 { BYTES_OF_ONE } else { BYTES };
    threads.push(thread::spawn(move || {
        if let Err(why) = with_stacks(&queries, &setting, bytes, sums, &found) {
            _ = found.send(Err(why));
        }
    }));
    Found { parts, threads }
}

/// Finds the stacks of sums, and gives both.
fn with_stacks(
    queries: &Queries,
    setting: &str,
    bytes: u64,
    sums: Receiver<(usize, Samples)>,
    found: &SyncSender<Result<Part, Error>>,
) -> Result<(), Error> {
    let give = |part| found.send(Ok(part)).is_ok();
    for of in in_order(sums.into_iter()) {
        queries.stacks(&of, setting, bytes, |stacks| give(Part::Stacks(stacks)))?;
        if !give(Part::Samples(of)) {
            break;
        }
    }
    Ok(())
}

/// Things in the order of their places, so that a profile is the same each time.
fn in_order<T>(mut found: impl Iterator<Item = (usize, T)>) -> impl Iterator<Item = T> {
    let mut early = BTreeMap::new();
    (0..).map_while(move |next| {
        while !early.contains_key(&next) {
            let (place, thing) = found.next()?;
            early.insert(place, thing);
        }
        early.remove(&next)
    })
}

impl Iterator for Found {
    type Item = Result<Part, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(part) = self.parts.recv() {
            return Some(part);
        }
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_early_waits() {
        let found = [(1, 'b'), (3, 'd'), (0, 'a'), (2, 'c'), (5, 'f')];
        assert_eq!(in_order(found.into_iter()).collect::<String>(), "abcd");
    }
}
