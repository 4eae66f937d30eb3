//! The calls of stacks, each once. Stacks come many at a time, and are divided by their frames from
//! the outermost on until each is alone. The calls of each caller are sorted, and so are stacks
//! where they are divided: both are gone through side by side, as lists are merged, and none is
//! looked up.

use crate::profile::{Call, CallId, SourceFrameId};

#[derive(Default)]
pub(super) struct Calls {
    /// A parent comes before its children.
    all: Vec<Call>,
    /// Likewise.
    places: Vec<Place>,
    outermost: Option<CallId>,
}

/// Where a call stands among those of its caller.
struct Place {
    /// Of its frame: by these they are sorted.
    hash: u64,
    next: Option<CallId>,
    /// The first of those that it makes itself.
    first: Option<CallId>,
}

impl Calls {
    /// Adds stacks, each the hashes of its frames from the innermost; `frame` is the frame of a
    /// hash. Gives the innermost call of each, `None` of one without frames.
    pub(super) fn add(
        &mut self,
        stacks: &[&[[u8; 8]]],
        mut frame: impl FnMut(u64) -> SourceFrameId,
    ) -> Vec<Option<CallId>> {
        let mut ends = vec![None; stacks.len()];
        // What stands first is by what they are divided.
        let mut all: Vec<(u64, usize)> = (0..stacks.len()).map(|stack| (0, stack)).collect();
        // Some that have the same callers, the innermost of these, and how many they are.
        let mut open = vec![(0..all.len(), None, 0)];
        while let Some((some, caller, callers)) = open.pop() {
            if let [(_, stack)] = all[some.clone()] {
                let rest = stacks[stack].iter().rev().skip(callers);
                ends[stack] = rest.fold(caller, |caller, hash| {
                    Some(self.call(caller, None, u64::from_le_bytes(*hash), &mut frame))
                });
                continue;
            }
            let mut begin = some.start;
            for place in some.clone() {
                let stack = all[place].1;
                if let Some(hash) = stacks[stack].iter().nth_back(callers) {
                    all[place].0 = u64::from_le_bytes(*hash);
                } else {
                    ends[stack] = caller;
                    all.swap(begin, place);
                    begin += 1;
                }
            }
            let rest = &mut all[begin..some.end];
            rest.sort_unstable_by_key(|one| one.0);
            let mut before = None;
            for alike in rest.chunk_by(|one, other| one.0 == other.0) {
                before = Some(self.call(caller, before, alike[0].0, &mut frame));
                let end = begin + alike.len();
                open.push((begin..end, before, callers + 1));
                begin = end;
            }
        }
        ends
    }

    /// The call of a frame by its caller, somewhere behind one of the caller's calls.
    fn call(
        &mut self,
        parent: Option<CallId>,
        mut before: Option<CallId>,
        hash: u64,
        frame: impl FnOnce(u64) -> SourceFrameId,
    ) -> CallId {
        let mut next = *self.behind(parent, before);
        while let Some(call) = next
            && self.hash(call) < hash
        {
            before = next;
            next = self.places[call.index()].next;
        }
        if let Some(known) = next.filter(|call| self.hash(*call) == hash) {
            return known;
        }
        let frame = frame(hash);
        let made = self.push(Call { parent, frame }, hash, next);
        *self.behind(parent, before) = Some(made);
        made
    }

    /// A call that no stack of others has.
    pub(super) fn alone(&mut self, frame: SourceFrameId) -> CallId {
        let parent = None;
        self.push(Call { parent, frame }, 0, None)
    }

    fn push(&mut self, call: Call, hash: u64, next: Option<CallId>) -> CallId {
        let first = None;
        self.all.push(call);
        self.places.push(Place { hash, next, first });
        CallId::next_of(self.all.len() - 1)
    }

    fn hash(&self, call: CallId) -> u64 {
        self.places[call.index()].hash
    }

    /// What comes behind one of a caller's calls, or the first of them.
    fn behind(&mut self, parent: Option<CallId>, before: Option<CallId>) -> &mut Option<CallId> {
        match (before, parent) {
            (Some(call), _) => &mut self.places[call.index()].next,
            (None, Some(parent)) => &mut self.places[parent.index()].first,
            (None, None) => &mut self.outermost,
        }
    }

    /// All of them.
    pub(super) fn list(self) -> Vec<Call> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_there_once_and_stacks_end_where_they_end() {
        let mut calls = Calls::default();
        let mut add = |stacks: &[&[u64]]| {
            let words = |stack: &&[u64]| {
                let words = stack.iter().rev().map(|hash| hash.to_le_bytes());
                words.collect::<Vec<_>>()
            };
            let stacks: Vec<_> = stacks.iter().map(words).collect();
            let stacks: Vec<_> = stacks.iter().map(|stack| &**stack).collect();
            calls.add(&stacks, |hash| SourceFrameId::new(hash as u32))
        };
        let one: [&[u64]; 5] = [&[2, 9], &[2], &[], &[2, 5, 7], &[4, 5]];
        let other: [&[u64]; 7] = [
            &[2, 9],
            &[4, 5, 5],
            &[1],
            &[2, 5, 6],
            &[2, 9],
            &[3],
            &[2, 5],
        ];
        let (ends, others) = (add(&one), add(&other));
        assert_eq!(add(&one), ends);
        assert_eq!(add(&other), others);
        let all = calls.list();
        let hashes = |mut at: Option<CallId>| {
            let mut hashes = Vec::new();
            while let Some(call) = at.map(|id| all[id.index()]) {
                hashes.insert(0, u64::from(call.frame.number()));
                at = call.parent;
            }
            hashes
        };
        let stacks = one.iter().chain(&other);
        for (end, stack) in ends.iter().chain(&others).zip(stacks) {
            assert_eq!(hashes(*end), *stack);
        }
        assert_eq!(all.len(), 10);
    }
}
