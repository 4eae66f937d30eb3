//! Stacks put together by the names of their functions: what begins alike is one path from the
//! root.
//!
//! Not here: how a path is written (`folded`, `svg`).

use super::{Options, Roots, thread_name};
use crate::intern::{HashMap, Interner, Pair, Pairs, both, index};
use crate::profile::{CallId, Function, Kind, Kinds, Profile, Sample, Units};
use crate::recording::{ProcessId, ThreadId};
use engine::wire::source::{OFF_CPU, WALL};

index!(
    /// Of [`CallTree::names`].
    NameId
);
index!(
    /// Of [`CallTree::nodes`].
    NodeId
);

/// The name of all that is too small to be told apart.
const SMALL: &str = "[many, each too small to be shown]";

/// The stacks of what is shown, and their weights.
pub(super) struct CallTree {
    nodes: Vec<Node>,
    weights: Vec<Weight>,
    names: Vec<Name>,
    /// By name, of the first function that is called so; `None` for processes and threads.
    kinds: Vec<Option<Kind>>,
}

/// A function below those that called it.
#[derive(Clone, Copy)]
struct Node {
    /// Made before this one.
    parent: Option<NodeId>,
    name: NameId,
}

impl Pair for Node {
    fn both(self) -> u64 {
        both(self.parent, self.name)
    }
}

#[derive(Clone, Copy, Default)]
struct Weight {
    /// Of stacks that end here.
    own: u64,
    /// How much of that is waiting.
    waits: u64,
    /// Of all that go through here.
    total: u64,
}

/// What a function is called; the whole name comes first, to sort by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    pub(super) whole: String,
    pub(super) shown: Option<String>,
}

/// A function on a path.
pub(super) struct Step<'a> {
    pub(super) name: &'a Name,
    /// What code it is; `None` for a process or a thread.
    pub(super) kind: Option<Kind>,
    /// Whether what ends here is most of it, and waits.
    pub(super) waits: bool,
}

/// Who a stack is counted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    All,
    Process(ProcessId),
    Thread(ThreadId),
}

impl CallTree {
    /// In sampling periods, or in what the event counted.
    pub(super) fn of(profile: &Profile, options: &Options) -> Self {
        let mut tree = Self::counted(profile, options);
        tree.divide(profile.unit());
        tree.sum();
        tree
    }

    /// In ns, or in what the event counted.
    pub(super) fn of_times(profile: &Profile, options: &Options) -> Self {
        let mut tree = Self::counted(profile, options);
        tree.sum();
        tree
    }

    fn counted(profile: &Profile, options: &Options) -> Self {
        let weigh = |sample: &Sample| profile.time_ns(sample);
        let mut builder = Builder {
            profile,
            options,
            tree: Self {
                nodes: Vec::new(),
                weights: Vec::new(),
                names: Vec::new(),
                kinds: Vec::new(),
            },
            code: Kinds::of(profile),
            known_names: Interner::default(),
            known_nodes: Pairs::default(),
            of_function: vec![None; profile.functions.len()],
            of_call: HashMap::default(),
        };
        let roots = roots(profile, options.roots);
        let owner = |sample: &Sample| match roots {
            Roots::Thread => Owner::Thread(sample.thread),
            Roots::Process => Owner::Process(profile.process_of(sample.thread)),
            Roots::None | Roots::Auto => Owner::All,
        };
        let mut ends: HashMap<(Owner, CallId), NodeId> = HashMap::default();
        for sample in profile.weighed() {
            let owner = owner(sample);
            let end = ends.entry((owner, sample.stack));
            let end = *end.or_insert_with(|| builder.end(owner, sample));
            let weight = &mut builder.tree.weights[end.index()];
            weight.own = weight.own.saturating_add(weigh(sample));
            if sample.event == OFF_CPU {
                weight.waits = weight.own;
            }
        }
        if profile.shown_event == WALL {
            // Whose samples do not say which of them are waiting.
            for sample in profile.aside.iter().filter(|it| it.event == OFF_CPU) {
                if let Some(end) = ends.get(&(owner(sample), sample.stack)) {
                    let waits = &mut builder.tree.weights[end.index()].waits;
                    *waits = waits.saturating_add(weigh(sample));
                }
            }
        }
        builder.tree
    }

    /// Into whole units, whose sum is as right as one of them can be.
    fn divide(&mut self, unit: u64) {
        let (mut own, mut waits) = (Units::of(unit), Units::of(unit));
        for weight in &mut self.weights {
            weight.own = own.next(weight.own);
            weight.waits = waits.next(weight.waits);
        }
    }

    fn sum(&mut self) {
        for index in (0..self.nodes.len()).rev() {
            let weight = &mut self.weights[index];
            weight.total = weight.total.saturating_add(weight.own);
            let total = weight.total;
            if let Some(parent) = self.nodes[index].parent {
                let above = &mut self.weights[parent.index()].total;
                *above = above.saturating_add(total);
            }
        }
    }

    /// The weight of all stacks.
    pub(super) fn whole(&self) -> u64 {
        let roots = self.nodes.iter().zip(&self.weights);
        let roots = roots.filter(|(node, _)| node.parent.is_none());
        roots.fold(0, |sum, (_, weight)| sum.saturating_add(weight.total))
    }

    /// What code the functions of a name are.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.kinds.iter().copied().flatten()
    }

    /// Hands over each stack and the weight that ends there, as `join` puts it together: it adds a
    /// name to what its callers made. Below nodes of less weight than `least` nothing is told
    /// apart, nor are outermost ones of less: they come last, as one. In the order of the names.
    pub(super) fn paths<E>(
        &self,
        least: u64,
        mut join: impl FnMut(&mut String, &Step<'_>),
        mut visit: impl FnMut(&str, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let kept = |index: usize| self.weights[index].total >= least;
        let mut below: Vec<Vec<NodeId>> = vec![Vec::new(); self.nodes.len()];
        let mut todo = Vec::new();
        for (index, node) in self
            .nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| kept(*index))
        {
            let id = NodeId::next_of(index);
            match node.parent {
                Some(parent) => below[parent.index()].push(id),
                None => todo.push(id),
            }
        }
        let name = |id: &NodeId| &self.names[self.nodes[id.index()].name.index()];
        let mut path = String::new();
        let backwards =
            |nodes: &mut Vec<NodeId>| nodes.sort_unstable_by(|a, b| name(b).cmp(name(a)));
        backwards(&mut todo);
        let mut todo: Vec<(NodeId, usize)> = todo.into_iter().map(|id| (id, 0)).collect();
        while let Some((id, length)) = todo.pop() {
            path.truncate(length);
            if length > 0 {
                path.push(';');
            }
            let Weight { own, waits, total } = self.weights[id.index()];
            let step = Step {
                name: name(&id),
                kind: self.kinds[self.nodes[id.index()].name.index()],
                waits: waits.saturating_mul(2) > own && own.saturating_mul(2) > total,
            };
            join(&mut path, &step);
            let mut inner = std::mem::take(&mut below[id.index()]);
            let inner_total = inner.iter().map(|id| self.weights[id.index()].total);
            let inner_total = inner_total.fold(0, u64::saturating_add);
            // With that of what is not told apart.
            let own = self.weights[id.index()].total.saturating_sub(inner_total);
            if own > 0 {
                visit(&path, own)?;
            }
            backwards(&mut inner);
            todo.extend(inner.into_iter().map(|id| (id, path.len())));
        }
        let roots = self.nodes.iter().zip(&self.weights);
        let small = roots.filter(|(node, weight)| node.parent.is_none() && weight.total < least);
        let small = small.fold(0u64, |sum, (_, weight)| sum.saturating_add(weight.total));
        if small > 0 {
            let name = Name {
                whole: SMALL.to_owned(),
                shown: None,
            };
            path.clear();
            let step = Step {
                name: &name,
                kind: None,
                waits: false,
            };
            join(&mut path, &step);
            visit(&path, small)?;
        }
        Ok(())
    }
}

fn roots(profile: &Profile, asked: Roots) -> Roots {
    let several = || {
        let mut processes = profile.weighed().map(|s| profile.process_of(s.thread));
        let first = processes.next();
        processes.any(|process| Some(process) != first)
    };
    match asked {
        Roots::Auto if several() => Roots::Process,
        Roots::Auto => Roots::None,
        chosen => chosen,
    }
}

struct Builder<'a> {
    profile: &'a Profile,
    options: &'a Options,
    tree: CallTree,
    code: Kinds,
    known_names: Interner<NameId>,
    known_nodes: Pairs<NodeId>,
    of_function: Vec<Option<NameId>>,
    of_call: HashMap<(Owner, CallId), NodeId>,
}

impl Builder<'_> {
    /// The node in which a sample's stack ends.
    fn end(&mut self, owner: Owner, sample: &Sample) -> NodeId {
        let (mut todo, mut at) = (Vec::new(), Some(sample.stack));
        let mut node = loop {
            let Some(call) = at else {
                break self.prefix(owner, sample.thread);
            };
            if let Some(known) = self.of_call.get(&(owner, call)) {
                break Some(*known);
            }
            todo.push(call);
            at = self.profile.stacks[call.index()].parent;
        };
        for call in todo.into_iter().rev() {
            let frame = self.profile.stacks[call.index()].frame;
            let name = self.function(self.profile.frames[frame.index()].function.index());
            let made = self.node(node, name);
            self.of_call.insert((owner, call), made);
            node = Some(made);
        }
        // A stack is never without a frame.
        node.unwrap_or_else(|| {
            let name = self.name("-", None, None);
            self.node(None, name)
        })
    }

    fn prefix(&mut self, owner: Owner, thread: ThreadId) -> Option<NodeId> {
        if owner == Owner::All {
            return None;
        }
        let profile = self.profile;
        let process = &profile.recording.processes[profile.process_of(thread).index()];
        let name = self.name(&format!("{} ({})", process.name(), process.pid), None, None);
        let node = self.node(None, name);
        if !matches!(owner, Owner::Thread(_)) {
            return Some(node);
        }
        let tid = profile.recording.threads[thread.index()].tid;
        let name = format!("{} ({tid})", thread_name(profile, thread));
        let name = self.name(&name, None, None);
        Some(self.node(Some(node), name))
    }

    fn function(&mut self, index: usize) -> NameId {
        if let Some(known) = self.of_function[index] {
            return known;
        }
        let function: &Function = &self.profile.functions[index];
        let shown = function.called(self.options.names);
        let name = self.name(
            &function.name,
            Some(shown).filter(|shown| **shown != *function.name),
            Some(self.code.kind(function)),
        );
        self.of_function[index] = Some(name);
        name
    }

    /// `kind` is of the first that is called so.
    fn name(&mut self, whole: &str, shown: Option<&str>, kind: Option<Kind>) -> NameId {
        let name = Name {
            whole: clean(whole),
            shown: shown.map(clean),
        };
        let id = self.known_names.place(&mut self.tree.names, name);
        self.tree.kinds.resize(self.tree.names.len(), kind);
        id
    }

    fn node(&mut self, parent: Option<NodeId>, name: NameId) -> NodeId {
        let node = self
            .known_nodes
            .place(&mut self.tree.nodes, Node { parent, name });
        self.tree
            .weights
            .resize(self.tree.nodes.len(), Weight::default());
        node
    }
}

/// What separates functions must not be in a name.
fn clean(name: &str) -> String {
    name.replace(';', ":")
}
