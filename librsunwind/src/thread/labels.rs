//! The labels of the regions that a thread is in, as its samples have them: a number, under which
//! they are described to the recording before.

use super::regions;
use super::state::ThreadState;
use crate::described::{self, Key, LABELS};
use crate::text::Text;
use core::sync::atomic::Ordering::Relaxed;
use engine::mix::mix;
use engine::wire::event::EventKind;
use engine::wire::label::{LabelSet, RENEWED_NS};
use engine::wire::record::RecordKind;

impl ThreadState {
    /// The number of the labels of all regions that the thread is in, 0 if there are none, and how
    /// often regions began or ended; at that time (`CLOCK_MONOTONIC`, ns). For the handler, or with
    /// the signal held back.
    ///
    /// # Signal safety
    /// Loads; where the labels are new to the recording as writing a record.
    pub(crate) fn labels(&self, time_ns: u64) -> (u64, u64) {
        let (now, stretch) = (self.regions.now(), time_ns / RENEWED_NS);
        let (known, number) = self.regions.described.get();
        if now.is_outside() {
            return (0, now.changes());
        }
        if known == (now.word, stretch) {
            return (number, now.changes());
        }
        let (length, pieces) = self.regions.labels(now);
        let key = Key::new(LABELS, pieces.clone().fold(1, hash), stretch);
        let number = described::find(key).unwrap_or_else(|| {
            let number = described::new_number();
            let head = (number, time_ns);
            let is_written = self.write(RecordKind::Labels, |out| {
                LabelSet::encode(head, length, pieces.clone(), out);
            });
            if is_written {
                described::insert(key, number);
            }
            number
        });
        // What could not be written is not kept under that key: it is tried again.
        if described::find(key).is_some() {
            self.regions.described.set(((now.word, stretch), number));
        }
        (number, now.changes())
    }

    /// At the end of the process: says what labels are missing.
    pub fn tell_of_labels(&self) {
        let left_out = regions::LEFT_OUT.load(Relaxed);
        let cut = regions::CUT.load(Relaxed);
        if left_out | cut != 0 {
            let text = Text::<160>::new()
                .decimal(left_out)
                .then(b" regions had no room for their labels, and ")
                .decimal(cut)
                .then(b" values of labels were cut to 255 bytes");
            self.event(EventKind::Note, left_out.saturating_add(cut), text.bytes());
        }
    }
}

fn hash(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(before, |sum, word| mix(sum ^ u64::from_le_bytes(*word)));
    let last = rest
        .iter()
        .fold(rest.len() as u64, |last, byte| last << 8 | u64::from(*byte));
    mix(sum ^ last)
}
