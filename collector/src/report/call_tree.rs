//! Who calls whom, as trees: all of a profile from where threads begin, or around one function what
//! it calls, or who calls it.
//!
//! A stack counts once for each tree, however often a function is on it.

use crate::intern::{HashMap, Pair, Pairs, both, index};
use crate::profile::{CallId, FunctionId, Names, Profile};
use regex::Regex;
use std::cmp::Reverse;

index!(
    /// Of [`Tree::nodes`].
    NodeId
);

/// Which tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// From where threads begin.
    Whole,
    /// What functions called so call.
    Callees(&'a Regex),
    /// Who calls functions called so.
    Callers(&'a Regex),
}

/// Functions below those that called them, or that they called.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// A parent comes before its children.
    pub(super) nodes: Vec<Node>,
}

/// A function at its place in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) parent: Option<NodeId>,
    pub(super) function: FunctionId,
    /// Of what ends here, ns or what the event counted.
    pub(super) own: u64,
    /// With all that is below.
    pub(super) total: u64,
}

impl Tree {
    /// Functions that are called the same are one.
    pub(super) fn of(profile: &Profile, shape: Shape<'_>, names: Names) -> Self {
        let mut own = vec![0_u64; profile.stacks.len()];
        for sample in profile.weighed() {
            let sum = &mut own[sample.stack.index()];
            *sum = sum.saturating_add(profile.time_ns(sample));
        }
        let mut builder = Builder {
            profile,
            alike: profile.alike(names),
            tree: Self::default(),
            known: Pairs::default(),
            keys: Vec::new(),
        };
        match shape {
            Shape::Whole => builder.downwards(&own, &vec![true; profile.functions.len()]),
            Shape::Callees(wanted) => builder.downwards(&own, &profile.functions_like(wanted)),
            Shape::Callers(wanted) => builder.upwards(&own, &profile.functions_like(wanted)),
        }
        builder.tree.sum();
        builder.tree
    }

    fn sum(&mut self) {
        for index in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[index];
            node.total = node.total.saturating_add(node.own);
            let (total, parent) = (node.total, node.parent);
            if let Some(parent) = parent {
                let above = &mut self.nodes[parent.index()].total;
                *above = above.saturating_add(total);
            }
        }
    }

    /// All that is in it.
    pub(super) fn whole(&self) -> u64 {
        let roots = self.nodes.iter().filter(|node| node.parent.is_none());
        roots.fold(0, |sum, root| sum.saturating_add(root.total))
    }

    /// The children of each node of at least this much, heaviest first, and of none the roots; of
    /// no more than so many nodes, each with what is above it.
    pub(super) fn children(&self, profile: &Profile, least: u64, limit: Option<usize>) -> Children {
        let mut children = Children::default();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        // A parent has as much as its children at least, and comes before them.
        order.sort_by_key(|index| Reverse(self.nodes[*index].total));
        let heavy = order.iter().take_while(|index| {
            let total = self.nodes[**index].total;
            total >= least && total > 0
        });
        let shown = heavy.count().min(limit.unwrap_or(usize::MAX));
        let (shown, left_out) = order.split_at(shown);
        children.left_out = left_out.len();
        children.most_left_out = left_out.first().map_or(0, |index| self.nodes[*index].total);
        for index in shown {
            let below = children.below.entry(self.nodes[*index].parent);
            below.or_default().push(NodeId::next_of(*index));
        }
        let name = |id: &NodeId| {
            let function = self.nodes[id.index()].function;
            &profile.functions[function.index()].name
        };
        for nodes in children.below.values_mut() {
            nodes.sort_by(|a, b| {
                let total = |id: &NodeId| self.nodes[id.index()].total;
                total(b).cmp(&total(a)).then_with(|| name(a).cmp(name(b)))
            });
        }
        children
    }
}

/// The nodes that are shown.
#[derive(Debug, Default)]
pub(super) struct Children {
    below: HashMap<Option<NodeId>, Vec<NodeId>>,
    /// How many are not.
    pub(super) left_out: usize,
    /// The most that one of these has.
    pub(super) most_left_out: u64,
}

impl Children {
    pub(super) fn of(&self, node: Option<NodeId>) -> &[NodeId] {
        self.below.get(&node).map_or(&[], Vec::as_slice)
    }
}

/// What nodes are known by.
#[derive(Clone, Copy)]
struct Key(Option<NodeId>, FunctionId);

impl Pair for Key {
    fn both(self) -> u64 {
        both(self.0, self.1)
    }
}

struct Builder<'a> {
    profile: &'a Profile,
    alike: Vec<FunctionId>,
    tree: Tree,
    known: Pairs<NodeId>,
    keys: Vec<Key>,
}

impl Builder<'_> {
    fn function(&self, call: CallId) -> FunctionId {
        let frame = self.profile.stacks[call.index()].frame;
        self.profile.frames[frame.index()].function
    }

    fn node(&mut self, parent: Option<NodeId>, function: FunctionId) -> NodeId {
        let function = self.alike[function.index()];
        let id = self.known.place(&mut self.keys, Key(parent, function));
        if self.keys.len() > self.tree.nodes.len() {
            self.tree.nodes.push(Node {
                parent,
                function,
                own: 0,
                total: 0,
            });
        }
        id
    }

    fn add(&mut self, node: NodeId, amount: u64) {
        let own = &mut self.tree.nodes[node.index()].own;
        *own = own.saturating_add(amount);
    }

    /// From the outermost of these functions to the leaf.
    fn downwards(&mut self, own: &[u64], roots: &[bool]) {
        let mut nodes: Vec<Option<NodeId>> = Vec::with_capacity(own.len());
        for (index, call) in self.profile.stacks.iter().enumerate() {
            let function = self.function(CallId::next_of(index));
            let above = call.parent.and_then(|parent| nodes[parent.index()]);
            let is_in = above.is_some() || roots[function.index()];
            let node = is_in.then(|| self.node(above, function));
            if let Some(node) = node {
                self.add(node, own[index]);
            }
            nodes.push(node);
        }
    }

    /// From the innermost of these functions to the root.
    fn upwards(&mut self, own: &[u64], roots: &[bool]) {
        let mut innermost: Vec<Option<CallId>> = Vec::with_capacity(own.len());
        let mut amounts = vec![0_u64; own.len()];
        for (index, call) in self.profile.stacks.iter().enumerate() {
            let id = CallId::next_of(index);
            let is_one = roots[self.function(id).index()];
            let above = call.parent.and_then(|parent| innermost[parent.index()]);
            let at = if is_one { Some(id) } else { above };
            if let Some(at) = at {
                amounts[at.index()] = amounts[at.index()].saturating_add(own[index]);
            }
            innermost.push(at);
        }
        for (index, amount) in amounts.iter().enumerate().filter(|(_, sum)| **sum > 0) {
            let (mut at, mut node) = (Some(CallId::next_of(index)), None);
            while let Some(call) = at {
                node = Some(self.node(node, self.function(call)));
                at = self.profile.stacks[call.index()].parent;
            }
            if let Some(node) = node {
                self.add(node, *amount);
            }
        }
    }
}
