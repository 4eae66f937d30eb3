//! What would make the stacks of code better that no table describes: options of the machines that
//! compile it while the program runs, or directives for an assembler.
//!
//! Which machine it is is told by what a process has mapped and by whose functions call the code,
//! not by a program's name.

use super::line;
use crate::jit_options;
use crate::numbers::share;
use crate::profile::{Function, Mode, Names, Profile, Sample};
use crate::recording::ProcessId;
use crate::symbolize::UNKNOWN;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Nothing is said about less than one part in so many.
const WORTH: u64 = 100;
/// Functions without tables that are named.
const NAMED: usize = 3;

/// What compiles code while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Machine {
    Java,
    V8,
    DotNet,
    Other,
}

impl Machine {
    const fn name(self) -> &'static str {
        match self {
            Self::Java => "that the JVM compiled",
            Self::V8 => "that V8 compiled",
            Self::DotNet => "that .NET compiled",
            Self::Other => "compiled at run time",
        }
    }

    /// What gives its code whole stacks, if that is an option.
    const fn for_stacks(self) -> Option<&'static str> {
        match self {
            Self::Java => Some(jit_options::JAVA_STACKS),
            Self::Other => Some("a frame pointer in the code that it makes"),
            Self::V8 | Self::DotNet => None,
        }
    }

    /// What gives its code names.
    const fn for_names(self) -> &'static str {
        match self {
            Self::Java => jit_options::JAVA_NAMES,
            Self::V8 => jit_options::V8_NAMES,
            Self::DotNet => jit_options::DOTNET_NAMES,
            Self::Other => "a /tmp/perf-PID.map",
        }
    }
}

/// Of what was compiled by one machine, weight.
#[derive(Default)]
struct Compiled {
    /// Stacks that end in it.
    cut: u64,
    /// Stacks with functions of it that have no name.
    unnamed: u64,
}

/// Writes a line for each.
pub(super) fn lines(out: &mut String, profile: &Profile) {
    for hint in all(profile) {
        line(out, "hint", &hint);
    }
}

/// One for each machine, and one for code without tables, if there is enough weight to it.
pub(super) fn all(profile: &Profile) -> Vec<String> {
    let mut out = Vec::new();
    let facts = Facts::of(profile);
    let mut all = 0u64;
    let mut compiled: BTreeMap<Machine, Compiled> = BTreeMap::new();
    let mut without_tables: HashMap<&Function, u64> = HashMap::default();
    for sample in &profile.samples {
        all = all.saturating_add(sample.weight);
        let of_stack = facts.stacks[sample.stack.index()];
        let outermost = of_stack
            .outermost
            .map(|function| &profile.functions[function]);
        let ends_in_it = |function: &&Function| is_cut(sample) && function.mode == Mode::User;
        let end = outermost.filter(ends_in_it);
        let is_compiled = end.is_some_and(|function| function.image.is_none());
        if is_compiled || of_stack.unnamed {
            let machine = facts.machine(profile.process_of(sample.thread));
            let compiled = compiled.entry(machine).or_default();
            let add =
                |to: &mut u64, is: bool| *to = to.saturating_add(u64::from(is) * sample.weight);
            add(&mut compiled.cut, is_compiled);
            add(&mut compiled.unnamed, of_stack.unnamed);
        } else if let Some(function) = end.filter(|_| ends_for_want_of_tables(sample)) {
            let weight = without_tables.entry(function).or_default();
            *weight = weight.saturating_add(sample.weight);
        }
    }
    let is_worth = |part: u64| part.saturating_mul(WORTH) >= all && part > 0;
    for (machine, Compiled { cut, unnamed }) in compiled {
        let stacks = machine.for_stacks().filter(|_| is_worth(cut));
        let stacks = stacks
            .map(|option| format!("{} of weight ends there ({option} helps)", share(cut, all)));
        let names = is_worth(unnamed).then(|| {
            let option = machine.for_names();
            format!("{} has no names ({option} gives them)", share(unnamed, all))
        });
        let words: Vec<_> = stacks.into_iter().chain(names).collect();
        if !words.is_empty() {
            let set = match machine {
                Machine::V8 | Machine::Other => "",
                Machine::Java | Machine::DotNet => "; record --jit-names sets that",
            };
            out.push(format!(
                "code {}: {}{set}",
                machine.name(),
                words.join("; ")
            ));
        }
    }
    let sum = without_tables
        .values()
        .fold(0u64, |sum, weight| sum.saturating_add(*weight));
    if is_worth(sum) {
        let mut places: Vec<_> = without_tables.into_iter().collect();
        places
            .sort_by_key(|(function, weight)| (std::cmp::Reverse(*weight), function.name.clone()));
        let names = places.iter().take(NAMED).map(|(function, weight)| {
            let image = profile.image_name(function);
            format!(
                "{} ({image}) {}",
                function.called(Names::Short),
                share(*weight, all)
            )
        });
        let names: Vec<_> = names.collect();
        let more = if places.len() > NAMED { " …" } else { "" };
        out.push(format!(
            "{} of weight ends in code without unwind tables: {}{more}; assembly gets them by .cfi directives, C by \
             -fasynchronous-unwind-tables",
            share(sum, all),
            names.join(", ")
        ));
    }
    out
}

/// Whether a stack does not reach to where threads begin.
fn is_cut(sample: &Sample) -> bool {
    use engine::wire::sample::StopReason::{Blocked, CopyEnded, FrameBudget, LeftOut, Root};
    !sample.complete
        && !matches!(
            sample.stop,
            Root | Blocked | LeftOut | CopyEnded | FrameBudget
        )
}

fn ends_for_want_of_tables(sample: &Sample) -> bool {
    use engine::wire::sample::StopReason::{FramePointerZero, NoRow};
    matches!(sample.stop, NoRow | FramePointerZero)
}

/// What a stack has.
#[derive(Clone, Copy, Default)]
struct OfStack {
    /// The outermost function that is no note, by its index.
    outermost: Option<usize>,
    /// Whether a function of no file has no name.
    unnamed: bool,
    /// Whether a function is V8's.
    v8: bool,
}

struct Facts {
    stacks: Vec<OfStack>,
    machines: HashMap<ProcessId, Machine>,
}

impl Facts {
    fn of(profile: &Profile) -> Self {
        let mut stacks: Vec<OfStack> = Vec::with_capacity(profile.stacks.len());
        for call in &profile.stacks {
            // A parent comes before its children.
            let parent = call.parent.map(|parent| stacks[parent.index()]);
            let parent = parent.unwrap_or_default();
            let id = profile.frames[call.frame.index()].function.index();
            let function = &profile.functions[id];
            let is_compiled = function.mode == Mode::User && function.image.is_none();
            let own = (function.mode != Mode::Note).then_some(id);
            stacks.push(OfStack {
                outermost: parent.outermost.or(own),
                unnamed: parent.unnamed || is_compiled && &*function.name == UNKNOWN,
                v8: parent.v8 || is_of_v8(&function.name),
            });
        }
        let mut machines = HashMap::default();
        let of_v8 = profile
            .samples
            .iter()
            .filter(|sample| stacks[sample.stack.index()].v8);
        let processes: HashSet<_> = of_v8
            .map(|sample| profile.process_of(sample.thread))
            .collect();
        machines.extend(processes.into_iter().map(|process| (process, Machine::V8)));
        for module in &profile.recording.modules {
            let name = module.path.rsplit('/').next().unwrap_or_default();
            if name.starts_with("libjvm.so") {
                machines.insert(module.process, Machine::Java);
            } else if name.starts_with("libcoreclr.so") {
                machines.insert(module.process, Machine::DotNet);
            }
        }
        Self { stacks, machines }
    }

    fn machine(&self, process: ProcessId) -> Machine {
        self.machines
            .get(&process)
            .copied()
            .unwrap_or(Machine::Other)
    }
}

fn is_of_v8(name: &str) -> bool {
    name.starts_with("v8::internal::") || name.starts_with("Builtins_")
}
