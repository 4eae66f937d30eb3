//! Folded stacks, Brendan Gregg's format: a line per distinct stack, functions from root to leaf with semicolons between, then a blank and
//! the weight in sampling periods (of other events than CPU time: what they counted). flamegraph.pl, inferno, speedscope and many others read it.

use super::{Format, Options, Roots, thread_name};
use crate::profile::{CallId, Profile};
use crate::recording::{ProcessId, ThreadId};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

pub(super) struct Folded;

impl Format for Folded {
    fn name(&self) -> &'static str {
        "folded"
    }

    fn about(&self) -> &'static str {
        "stacks as lines of text, for flame graph tools"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".folded", ".collapsed"]
    }

    fn write(&self, profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
        for (stack, weight) in lines(profile, options) {
            writeln!(out, "{stack} {weight}")?;
        }
        Ok(())
    }
}

/// Who a stack is counted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    All,
    Process(ProcessId),
    Thread(ThreadId),
}

/// The folded stacks and their weights, by stack.
pub(super) fn lines(profile: &Profile, options: &Options) -> BTreeMap<String, u64> {
    let several = || {
        let mut processes = profile.samples.iter().map(|s| profile.process_of(s.thread));
        let first = processes.next();
        processes.any(|process| Some(process) != first)
    };
    let roots = match options.roots {
        Roots::Auto if several() => Roots::Process,
        Roots::Auto => Roots::None,
        chosen => chosen,
    };
    let mut weights: HashMap<(Owner, CallId), (String, u64)> = HashMap::new();
    for sample in &profile.samples {
        let owner = match roots {
            Roots::Thread => Owner::Thread(sample.thread),
            Roots::Process => Owner::Process(profile.process_of(sample.thread)),
            Roots::None | Roots::Auto => Owner::All,
        };
        let entry = weights.entry((owner, sample.stack));
        let (_, weight) = entry.or_insert_with(|| {
            let process = &profile.recording.processes[profile.process_of(sample.thread).index()];
            let process = format!("{} ({})", process.name(), process.pid);
            let thread = &profile.recording.threads[sample.thread.index()];
            let thread = format!("{} ({})", thread_name(profile, sample.thread), thread.tid);
            let prefix = match owner {
                Owner::All => Vec::new(),
                Owner::Process(_) => vec![process],
                Owner::Thread(_) => vec![process, thread],
            };
            (fold(profile, prefix, sample.stack), 0)
        });
        *weight = weight.saturating_add(sample.weight);
    }
    let mut lines = BTreeMap::new();
    for (stack, weight) in weights.into_values() {
        let sum: &mut u64 = lines.entry(stack).or_default();
        *sum = sum.saturating_add(weight);
    }
    lines
}

fn fold(profile: &Profile, prefix: Vec<String>, stack: CallId) -> String {
    let names = profile
        .walk(stack)
        .map(|frame| profile.function(frame).name.to_string());
    let mut names: Vec<String> = names.collect();
    names.reverse();
    let all: Vec<String> = prefix
        .into_iter()
        .chain(names)
        .map(|name| clean(&name))
        .collect();
    all.join(";")
}

/// What separates functions and lines must not be in a name.
fn clean(name: &str) -> String {
    name.replace(';', ":").replace(['\n', '\r'], " ")
}
