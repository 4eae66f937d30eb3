//! Leaves only the samples of some processes, threads, functions, binaries and times.

use super::{Gil, Names, NoLabel, Profile, Sample};
use crate::recording::ThreadId;
use regex::Regex;

/// Which samples to keep; each list that is empty keeps all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Processes by pid, or by name.
    pub processes: Vec<String>,
    /// Threads by tid, or by name.
    pub threads: Vec<String>,
    /// Those with a function on the stack for each of these.
    pub focus: Vec<Regex>,
    /// Those without a function on the stack for any of these.
    pub ignore: Vec<Regex>,
    /// Those taken in a binary for one of these: that of the innermost frame.
    pub modules: Vec<Regex>,
    /// From when on, ns since the profile's start.
    pub from_ns: Option<u64>,
    /// Until when.
    pub to_ns: Option<u64>,
    /// Only those of threads that held Python's GIL, or waited for it.
    pub gil: bool,
    /// Those with all of these labels, each `KEY=VALUE`, or `KEY` for any value.
    pub labels: Vec<String>,
}

/// Nothing would be left.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// Nothing is called so.
    #[error("no {what} is named {wanted} or has that number; there are: {there}")]
    Name {
        /// What was looked for.
        what: &'static str,
        /// By which name.
        wanted: String,
        /// Some of those that there are.
        there: String,
    },
    /// Nothing has such a label.
    #[error(transparent)]
    Label(#[from] NoLabel),
    /// A range of no length.
    #[error("--to is not behind --from: nothing lies between")]
    Range,
}

impl Filter {
    /// Drops the samples of all other threads.
    ///
    /// # Errors
    /// [`FilterError`] if something asked for is not there.
    pub fn apply(&self, profile: &mut Profile) -> Result<(), FilterError> {
        let recording = &profile.recording;
        let processes = recording.processes.iter();
        let processes = processes.map(|p| (p.pid, p.name())).collect::<Vec<_>>();
        check("process", &self.processes, &processes)?;
        let threads = recording.threads.iter();
        let threads = threads.map(|t| (t.tid, &*t.name)).collect::<Vec<_>>();
        check("thread", &self.threads, &threads)?;
        let keep = |id: ThreadId| {
            let process = recording.threads[id.index()].process;
            matches(&self.threads, threads[id.index()])
                && matches(&self.processes, processes[process.index()])
        };
        if self
            .from_ns
            .zip(self.to_ns)
            .is_some_and(|(from, to)| to <= from)
        {
            return Err(FilterError::Range);
        }
        let in_range = self.range(profile);
        let stacks = self.stacks(profile);
        let labels = profile.sets_with(&self.labels)?;
        let is_meant = |sample: &Sample| !self.gil || sample.gil != Gil::Nothing;
        let keep = |sample: &Sample| {
            keep(sample.thread)
                && stacks[sample.stack.index()]
                && labels.get(sample.labels.index()) == Some(&true)
                && is_meant(sample)
        };
        let in_time = |sample: &Sample| in_range.contains(&sample.time_ns) && keep(sample);
        profile.samples.retain(in_time);
        profile.aside.retain(in_time);
        // Nobody knows when within a process's life that was.
        let any_time = self.from_ns.or(self.to_ns).is_none();
        let remainders = &mut profile.remainders;
        remainders.retain(|sample| any_time && keep(sample));
        Ok(())
    }

    /// Whether it keeps all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let named = self.processes.is_empty() && self.threads.is_empty();
        let stacks = self.focus.is_empty() && self.ignore.is_empty() && self.modules.is_empty();
        named
            && stacks
            && self.labels.is_empty()
            && !self.gil
            && self.from_ns.or(self.to_ns).is_none()
    }

    fn range(&self, profile: &Profile) -> std::ops::Range<u64> {
        let at = |ns: u64| profile.start_ns().saturating_add(ns);
        self.from_ns.map_or(0, at)..self.to_ns.map_or(u64::MAX, at)
    }

    /// For each stack whether it is kept.
    fn stacks(&self, profile: &Profile) -> Vec<bool> {
        let mut kept = vec![true; profile.stacks.len()];
        let mut only = |keep: &dyn Fn(usize) -> bool| {
            for (index, kept) in kept.iter_mut().enumerate() {
                *kept &= keep(index);
            }
        };
        for wanted in &self.focus {
            let with = profile.stacks_with(wanted);
            only(&|index| with[index]);
        }
        for unwanted in &self.ignore {
            let with = profile.stacks_with(unwanted);
            only(&|index| !with[index]);
        }
        if !self.modules.is_empty() {
            let is_in = |function| {
                let image = profile.image_name(function);
                self.modules.iter().any(|wanted| wanted.is_match(image))
            };
            let functions: Vec<bool> = profile.functions.iter().map(is_in).collect();
            only(&|index| {
                let frame = &profile.frames[profile.stacks[index].frame.index()];
                functions[frame.function.index()]
            });
        }
        kept
    }
}

impl Profile {
    /// For each function whether it is called, whole or in short, what `wanted` matches.
    #[must_use]
    pub fn functions_like(&self, wanted: &Regex) -> Vec<bool> {
        let like = |name| wanted.is_match(name);
        let functions = self.functions.iter();
        functions
            .map(|function| like(function.called(Names::Short)) || like(&function.name))
            .collect()
    }

    /// For each stack whether such a function is on it.
    fn stacks_with(&self, wanted: &Regex) -> Vec<bool> {
        let functions = self.functions_like(wanted);
        let mut with: Vec<bool> = Vec::with_capacity(self.stacks.len());
        for call in &self.stacks {
            // A parent comes before its children.
            let above = call.parent.is_some_and(|parent| with[parent.index()]);
            let frame = &self.frames[call.frame.index()];
            with.push(above || functions[frame.function.index()]);
        }
        with
    }
}

fn matches(wanted: &[String], (number, name): (u32, &str)) -> bool {
    let same = |wanted: &String| wanted == name || wanted.parse() == Ok(number);
    wanted.is_empty() || wanted.iter().any(same)
}

fn check(what: &'static str, wanted: &[String], there: &[(u32, &str)]) -> Result<(), FilterError> {
    for one in wanted {
        if !there
            .iter()
            .any(|there| matches(std::slice::from_ref(one), *there))
        {
            let mut names: Vec<String> = there
                .iter()
                .map(|(number, name)| format!("{name} ({number})"))
                .collect();
            names.dedup();
            let more = names.len().saturating_sub(20);
            names.truncate(20);
            if more > 0 {
                names.push(format!("{more} more"));
            }
            return Err(FilterError::Name {
                what,
                wanted: one.clone(),
                there: names.join(", "),
            });
        }
    }
    Ok(())
}
