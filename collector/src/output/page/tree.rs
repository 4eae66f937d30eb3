//! The calls of a profile as one tree of functions, numbered so that what a function calls follows
//! it, and of several callees that with the most first.

use crate::intern::{HashMap, Pair, Pairs, both, index};
use crate::profile::{CallId, FunctionId, Profile, Sample};

index!(
    /// Of the tree's nodes; 0 is what all stacks begin below.
    NodeId
);

/// A function below those that called it.
#[derive(Clone, Copy)]
struct Node {
    /// Made before this one; `None` at the outermost.
    parent: Option<NodeId>,
    function: FunctionId,
}

impl Pair for Node {
    fn both(self) -> u64 {
        both(self.parent, self.function)
    }
}

/// The tree, in the order of its numbers.
pub(super) struct Tree {
    /// How many callers each has, and which function it is, from number 1 on.
    pub(super) nodes: Vec<(u32, FunctionId)>,
    /// The numbers of the stacks that samples have.
    ends: HashMap<CallId, u32>,
}

impl Tree {
    /// Of all stacks that some of the samples have.
    pub(super) fn of<'a>(
        profile: &Profile,
        samples: impl Iterator<Item = &'a Sample> + Clone,
    ) -> Self {
        let mut weights = vec![None::<u64>; profile.stacks.len()];
        for sample in samples.clone() {
            let weight = weights[sample.stack.index()].get_or_insert(0);
            *weight = weight.saturating_add(profile.time_ns(sample));
        }
        for index in (0..weights.len()).rev() {
            if let (Some(weight), Some(parent)) = (weights[index], profile.stacks[index].parent) {
                let above = weights[parent.index()].get_or_insert(0);
                *above = above.saturating_add(weight);
            }
        }
        let (mut nodes, mut known) = (Vec::new(), Pairs::<NodeId>::default());
        let mut totals: Vec<u64> = Vec::new();
        let mut of_call = vec![None; profile.stacks.len()];
        for (index, weight) in weights.iter().enumerate() {
            let Some(weight) = weight else { continue };
            let call = profile.stacks[index];
            let node = Node {
                parent: call.parent.and_then(|parent| of_call[parent.index()]),
                function: profile.frames[call.frame.index()].function,
            };
            let id = known.place(&mut nodes, node);
            totals.resize(nodes.len(), 0);
            totals[id.index()] = totals[id.index()].saturating_add(*weight);
            of_call[index] = Some(id);
        }
        drop((weights, known));
        let (numbered, numbers) = number(&nodes, &totals);
        let number = |call: CallId| of_call[call.index()].map_or(0, |id| numbers[id.index()]);
        Self {
            nodes: numbered,
            ends: samples.map(|one| (one.stack, number(one.stack))).collect(),
        }
    }

    /// The number of a stack; 0 if no sample has it.
    pub(super) fn end(&self, stack: CallId) -> u32 {
        self.ends.get(&stack).copied().unwrap_or(0)
    }
}

/// Numbers nodes from 1 on, and gives the number of each.
fn number(nodes: &[Node], totals: &[u64]) -> (Vec<(u32, FunctionId)>, Vec<u32>) {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    let callees = |index: usize| nodes[index].parent.map_or(0, |parent| parent.index() + 1);
    order.sort_unstable_by_key(|index| (callees(*index), totals[*index], *index));
    let mut first = vec![0usize; nodes.len() + 2];
    for index in 0..nodes.len() {
        first[callees(index) + 1] += 1;
    }
    for index in 1..first.len() {
        first[index] += first[index - 1];
    }
    let below = |index: usize| order[first[index]..first[index + 1]].iter().copied();
    let mut numbered = Vec::with_capacity(nodes.len());
    let mut numbers = vec![0; nodes.len()];
    let mut todo: Vec<(usize, u32)> = below(0).map(|index| (index, 0)).collect();
    while let Some((index, depth)) = todo.pop() {
        numbered.push((depth, nodes[index].function));
        numbers[index] = NodeId::next_of(numbered.len()).number();
        todo.extend(below(index + 1).map(|index| (index, depth + 1)));
    }
    (numbered, numbers)
}
