//! Labels of regions: those of one key, and the samples that have a certain one.

use super::Profile;
use crate::recording::LabelsId;
use std::collections::BTreeSet;

/// Nothing has such a label.
#[derive(Debug, thiserror::Error)]
#[error("no sample has the label {wanted}; {there}")]
pub struct NoLabel {
    wanted: String,
    there: String,
}

/// How many are named in a message.
const NAMED: usize = 20;

impl Profile {
    /// Leaves only labels of this key.
    ///
    /// # Errors
    /// [`NoLabel`] if there are none.
    pub fn keep_label(&mut self, key: &str) -> Result<(), NoLabel> {
        let sets = &mut self.recording.labels;
        if !sets.iter().flatten().any(|(known, _)| &**known == key) {
            return Err(self.no_label(key, ""));
        }
        for set in sets.iter_mut() {
            set.retain(|(known, _)| &**known == key);
        }
        Ok(())
    }

    /// For each set of labels whether it has all of these, `KEY=VALUE` or `KEY`.
    ///
    /// # Errors
    /// [`NoLabel`] if none has one of them.
    pub(super) fn sets_with(&self, wanted: &[String]) -> Result<Vec<bool>, NoLabel> {
        let sets = &self.recording.labels;
        let mut with = vec![true; sets.iter().count()];
        for one in wanted {
            let (key, value) = match one.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (&**one, None),
            };
            let has = |id: LabelsId| {
                let found = sets.value(id, key);
                found.is_some_and(|found| value.is_none_or(|value| value == &**found))
            };
            let these: Vec<bool> = (0..with.len())
                .map(|id| has(LabelsId::next_of(id)))
                .collect();
            if !these.contains(&true) {
                return Err(self.no_label(one, key));
            }
            with.iter_mut()
                .zip(these)
                .for_each(|(with, has)| *with &= has);
        }
        Ok(with)
    }

    /// There are other values of that key, or other keys.
    fn no_label(&self, wanted: &str, key: &str) -> NoLabel {
        let all = || self.recording.labels.iter().flatten();
        let values = all().filter(|(known, _)| &**known == key);
        let mut there: BTreeSet<String> = values.map(|(k, v)| format!("{k}={v}")).collect();
        if there.is_empty() {
            there = all().map(|(key, _)| key.to_string()).collect();
        }
        let more = there.len().saturating_sub(NAMED);
        let mut there: Vec<String> = there.into_iter().take(NAMED).collect();
        if more > 0 {
            there.push(format!("{more} more"));
        }
        NoLabel {
            wanted: wanted.to_owned(),
            there: match there.is_empty() {
                true => "there are none: the program says of no region what it is".to_owned(),
                false => format!("there are: {}", there.join(", ")),
            },
        }
    }
}
