//! Stacks of interpreters' functions beside those that the program itself says it had.

use crate::interpreted::{Seen, stack};
use crate::statistics::share;
use collector::recording::Recording;
use engine::wire::sample::StopReason;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A function and its script, which is empty where functions are told apart by their names alone.
pub type Name<'a> = (&'a str, &'a str);
/// Those of a stack, outermost first.
type Names<'a> = Vec<Name<'a>>;

/// The function that uses the CPU time, at the end of each stack that is compared.
const INNERMOST: &str = "spin";

/// Stacks as the program says them, by their functions: those that differ by lines alone are one.
#[derive(Debug)]
pub struct Known<'a> {
    innermost: Name<'a>,
    /// What the program did, and the lines above the innermost function.
    stacks: HashMap<Names<'a>, (&'a str, Vec<Vec<u32>>)>,
    pairs: HashSet<(Name<'a>, Name<'a>)>,
}

impl<'a> Known<'a> {
    /// None yet, of a program whose time is used in that script.
    #[must_use]
    pub fn of(script: &'a str) -> Self {
        Self {
            innermost: (INNERMOST, script),
            stacks: HashMap::new(),
            pairs: HashSet::new(),
        }
    }

    /// One of a thing that the program does, outermost first and without the innermost function,
    /// with the lines that its functions were at.
    pub fn add(&mut self, thing: &'a str, stack: impl Iterator<Item = (Name<'a>, u32)>) {
        let (mut names, lines): (Names, Vec<u32>) = stack.unzip();
        names.push(self.innermost);
        self.pairs
            .extend(names.windows(2).map(|pair| (pair[0], pair[1])));
        let of_names = self.stacks.entry(names).or_insert((thing, Vec::new()));
        of_names.1.push(lines);
    }
}

/// How a recording compares with them: weights of samples.
#[derive(Debug, Default)]
pub struct Counted {
    /// All samples in the innermost function.
    pub all: u64,
    /// Those whose stack the program has said.
    pub right: u64,
    /// Those with its lines, too.
    pub with_lines: u64,
    /// Those whose known lines are right, but not all are known.
    pub without_lines: u64,
    /// Right ones that are whole, with native frames around what native code calls.
    pub among_natives: u64,
    /// The right ones of each thing that the program does.
    pub of_thing: BTreeMap<String, u64>,
    /// Functions, one called by the other, which they never are.
    pub wrong_pairs: BTreeSet<String>,
    /// A stack that the program has not said.
    pub not_said: Option<Vec<String>>,
    /// Lines that it has not said.
    pub wrong_lines: Option<String>,
}

/// Compares a recording. `function` gives a frame's function and line, if it is one that the
/// program may have said; `is_from_native` whether native code calls the function of that name.
///
/// # Panics
/// If the recording contradicts itself.
#[must_use]
pub fn count(
    recording: &Recording,
    known: &Known,
    function: fn(&Seen) -> Option<(Name<'_>, u32)>,
    is_from_native: fn(&str) -> bool,
) -> Counted {
    let mut counted = Counted::default();
    for sample in &recording.samples {
        let frames = stack(recording, sample);
        let functions: Vec<(usize, Name, u32)> = (0..frames.len())
            .filter_map(|at| function(&frames[at]).map(|(name, line)| (at, name, line)))
            .collect();
        let names: Names = functions.iter().map(|(_, name, _)| *name).collect();
        if names.last().is_none_or(|(name, _)| *name != INNERMOST) {
            continue;
        }
        let pairs = names.windows(2).map(|pair| (pair[0], pair[1]));
        let wrong = pairs.filter(|pair| !known.pairs.contains(pair));
        counted
            .wrong_pairs
            .extend(wrong.map(|pair| format!("{pair:?}")));
        counted.all += sample.weight;
        let Some((thing, said)) = known.stacks.get(&names) else {
            let mut shown: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            shown.dedup();
            counted.not_said = Some(shown);
            continue;
        };
        counted.right += sample.weight;
        *counted.of_thing.entry((*thing).to_owned()).or_default() += sample.weight;
        let (_, above) = functions.split_last().expect("it is there");
        let lines: Vec<u32> = above.iter().map(|(_, _, line)| *line).collect();
        let is_known = |said: &Vec<u32>| {
            let mut both = lines.iter().zip(said);
            both.all(|(line, said)| line == said || *line == 0)
        };
        if said.contains(&lines) {
            counted.with_lines += sample.weight;
        } else if said.iter().any(is_known) {
            counted.without_lines += sample.weight;
        } else {
            counted.wrong_lines = Some(format!("{thing}: {above:?} for {said:?}"));
        }
        let mut inner = functions.windows(2);
        let is_among = inner.all(|pair| pair[1].0 - pair[0].0 > 1 || !is_from_native(pair[1].1.0));
        let is_whole = sample.stop == StopReason::Root && functions[0].0 > 2;
        let is_right = is_among && is_whole && !frames.contains(&Seen::Other);
        counted.among_natives += sample.weight * u64::from(is_right);
    }
    counted
}

impl Counted {
    /// What part of all that is.
    #[must_use]
    pub fn part(&self, of: u64) -> f64 {
        share(of, self.all)
    }

    /// By how much more of the samples each of some things has than of the time that the program
    /// says they took.
    pub fn off<'s>(
        &self,
        said: impl Iterator<Item = (&'s str, f64)> + Clone,
    ) -> impl Iterator<Item = (&'s str, f64)> {
        let seen = |thing: &str| self.of_thing.get(thing).copied().unwrap_or(0);
        let all_seen = said.clone().map(|(thing, _)| seen(thing)).sum();
        let all: f64 = said.clone().map(|(_, time)| time).sum();
        said.map(move |(thing, time)| (thing, share(seen(thing), all_seen) - time / all))
    }
}
