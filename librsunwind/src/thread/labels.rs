//! The labels of the regions that a thread is in, as its samples have them: a number, under which
//! they are described to the recording before. Those of the span that it is in come first: what a
//! region says of that holds.

use super::regions;
use super::state::ThreadState;
use crate::described::{self, Key, LABELS};
use crate::text::Text;
use crate::trace_context::{self, Span};
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
        let span = trace_context::span();
        if now.is_outside() && span.is_none() {
            return (0, now.changes());
        }
        let of_span = span.map(|span| span.into_iter().fold(1, |sum, word| mix(sum ^ word)));
        let here = (now.word, of_span.unwrap_or(0), stretch);
        if known == here {
            return (number, now.changes());
        }
        let (length, pieces) = self.regions.labels(now);
        let text = span.map(labels_of);
        let text: &[u8] = text.as_ref().map_or(&[], |text| text);
        let length = length.saturating_add(text.len());
        let pieces = core::iter::once(text).chain(pieces.map(|piece| -> &[u8] { piece }));
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
            self.regions.described.set((here, number));
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
                .then(b" regions were left out, whose labels were wrong or had no room, and ")
                .decimal(cut)
                .then(b" values of labels were cut to 255 bytes");
            self.event(EventKind::Note, left_out.saturating_add(cut), text.bytes());
        }
    }
}

/// Bytes of the labels of a span.
const SPAN_LABELS: usize = 1 + 8 + 1 + 32 + 1 + 7 + 1 + 16;

/// A span's labels, as regions have theirs.
fn labels_of(span: Span) -> [u8; SPAN_LABELS] {
    let mut text = [0; SPAN_LABELS];
    let digit = |number: u8| if number < 10 { b'0' } else { b'a' - 10 }.wrapping_add(number);
    let [high, low, id] = span.map(u64::to_le_bytes);
    let trace = high.into_iter().chain(low);
    let digits = |byte: u8| [digit(byte >> 4), digit(byte & 15)];
    let all = b"\x08trace_id\x20".iter().copied();
    let all = all.chain(trace.flat_map(digits));
    let all = all.chain(b"\x07span_id\x10".iter().copied());
    let all = all.chain(id.into_iter().flat_map(digits));
    text.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    text
}

/// A digest of bytes, behind others.
pub(super) fn hash(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(before, |sum, word| mix(sum ^ u64::from_le_bytes(*word)));
    let last = rest
        .iter()
        .fold(rest.len() as u64, |last, byte| last << 8 | u64::from(*byte));
    mix(sum ^ last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_their_ids_in_hexadecimal_digits() {
        let word = |byte: u8| u64::from_le_bytes([byte; 8]);
        let set = LabelSet {
            labels: &labels_of([word(0x4b), word(0x0a), word(0xf2)]),
            ..LabelSet::default()
        };
        let labels: Vec<_> = set.iter().collect();
        let trace = b"4b4b4b4b4b4b4b4b0a0a0a0a0a0a0a0a";
        let wanted: [(&[u8], &[u8]); 2] = [(b"trace_id", trace), (b"span_id", b"f2f2f2f2f2f2f2f2")];
        assert_eq!(labels, wanted);
    }
}
