//! The labels of regions that threads were in, and which sample has which.
//!
//! A thread says with each of its samples how often it had begun or ended a region. What it was in
//! when others sampled it, or when only the kernel did, is known where it says the same before and
//! behind.

use super::ids::LabelsId;
use crate::intern::HashMap;
use engine::wire::label::LabelSet as Found;
use std::sync::Arc;

impl LabelsId {
    /// In no region.
    pub const NONE: Self = Self::new(0);
    /// Not known.
    pub const UNKNOWN: Self = Self::new(1);
}

/// Keys and values, by key.
pub type Labels = Vec<(Arc<str>, Arc<str>)>;

/// Distinct sets of labels. The first two, which are empty, stand for none and for those that are
/// not known.
#[derive(Debug)]
pub struct LabelSets(Vec<Labels>);

impl Default for LabelSets {
    fn default() -> Self {
        Self(vec![Labels::new(); 2])
    }
}

impl LabelSets {
    /// The labels of a set.
    #[must_use]
    pub fn get(&self, id: LabelsId) -> &[(Arc<str>, Arc<str>)] {
        self.0.get(id.index()).map_or(&[], Vec::as_slice)
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, id: LabelsId, key: &str) -> Option<&Arc<str>> {
        let labels = self.get(id);
        let place = labels.binary_search_by(|(known, _)| (**known).cmp(key));
        place.ok().map(|place| &labels[place].1)
    }

    /// Whether anything is labelled.
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.len() > 2
    }

    /// All sets.
    pub fn iter(&self) -> impl Iterator<Item = &Labels> {
        self.0.iter()
    }

    /// A new set: that one, and these where it has no such key.
    #[cfg_attr(not(feature = "agent"), expect(dead_code))]
    pub(crate) fn with(&mut self, id: LabelsId, more: &[(Arc<str>, Arc<str>)]) -> LabelsId {
        let mut labels = self.get(id).to_vec();
        labels.extend(more.iter().cloned());
        labels.sort_by(|(a, _), (b, _)| a.cmp(b));
        labels.dedup_by(|(a, _), (b, _)| a == b);
        self.0.push(labels);
        LabelsId::next_of(self.0.len() - 1)
    }

    /// All of them, to be changed; none are added or taken away.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Labels> {
        self.0.iter_mut()
    }

    /// All of them, for who finds their places.
    pub(crate) const fn list(&mut self) -> &mut Vec<Labels> {
        &mut self.0
    }
}

/// The labels that a record has: of those with one key the last.
pub(super) fn labels(found: &Found<'_>) -> Labels {
    let text = |bytes: &[u8]| Arc::from(String::from_utf8_lossy(bytes));
    let mut labels: Labels = found.iter().map(|(k, v)| (text(k), text(v))).collect();
    labels.reverse();
    labels.sort_by(|(a, _), (b, _)| a.cmp(b));
    labels.dedup_by(|(a, _), (b, _)| a == b);
    labels
}

/// What a thread said of its regions, by time.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// Until when it had been in none.
    none_until_ns: u64,
    said: Vec<Said>,
}

#[derive(Clone, Copy, Debug)]
struct Said {
    time_ns: u64,
    changes: u64,
    labels: LabelsId,
}

impl Regions {
    /// The thread itself says so.
    pub(crate) fn say(&mut self, time_ns: u64, changes: u64, labels: LabelsId) {
        if changes == 0 && labels == LabelsId::NONE && self.said.is_empty() {
            self.none_until_ns = self.none_until_ns.max(time_ns);
            return;
        }
        self.said.push(Said {
            time_ns,
            changes,
            labels,
        });
    }

    /// What it was in at a time: what it says before and from then on, if that is the same.
    fn at(&self, time_ns: u64) -> LabelsId {
        if self.said.is_empty() || time_ns <= self.none_until_ns {
            return LabelsId::NONE;
        }
        let next = self.said.partition_point(|said| said.time_ns < time_ns);
        let before = next.checked_sub(1).map(|before| self.said[before]);
        match (before, self.said.get(next)) {
            (Some(before), Some(next))
                if (before.changes, before.labels) == (next.changes, next.labels) =>
            {
                next.labels
            }
            _ => LabelsId::UNKNOWN,
        }
    }
}

/// Labels samples that do not say it themselves.
pub(crate) fn settle(regions: HashMap<super::ThreadId, Regions>, samples: &mut [super::RawSample]) {
    let mut regions = regions;
    for of_thread in regions.values_mut() {
        of_thread.said.sort_by_key(|said| said.time_ns);
    }
    for sample in samples {
        if sample.labels == LabelsId::UNKNOWN {
            let of_thread = regions.get(&sample.thread);
            sample.labels = of_thread.map_or(LabelsId::NONE, |said| said.at(sample.time_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_labels_with_one_key_the_inner_one_holds() {
        let found = Found {
            number: 1,
            time_ns: 0,
            labels: b"\x01b\x011\x01a\x012\x01b\x013",
        };
        let labels = labels(&found);
        let text: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(text, ["a=2", "b=3"]);
    }

    #[test]
    fn what_is_the_same_before_and_behind_was_so_between() {
        let [a, b] = [LabelsId::new(2), LabelsId::new(3)];
        let mut regions = Regions::default();
        assert_eq!(regions.at(7), LabelsId::NONE);
        regions.say(10, 0, LabelsId::NONE);
        regions.say(20, 1, a);
        regions.say(30, 1, a);
        regions.say(40, 3, b);
        regions.say(50, 4, LabelsId::NONE);
        regions.say(60, 4, LabelsId::NONE);
        let unknown = LabelsId::UNKNOWN;
        let at = [(5, LabelsId::NONE), (15, unknown), (25, a), (30, a)];
        let later = [
            (35, unknown),
            (45, unknown),
            (55, LabelsId::NONE),
            (65, unknown),
        ];
        for (time_ns, labels) in at.into_iter().chain(later) {
            assert_eq!(regions.at(time_ns), labels, "at {time_ns}");
        }
    }
}
