//! The hash of a stack, as the table's definition has it: of the hashes of its frames, as numbers
//! in text with commas between them, from the innermost.

use twox_hash::XxHash64;

/// A stack has room for so many bytes of text at first; a frame has 21 at most.
const FIRST: usize = 4096;

/// A stack from the outermost frame on. The next one has most often the same outer frames: their
/// text, which is at the end, stays.
#[derive(Debug, Default)]
pub(super) struct CallPath {
    /// Its calls, and how long the text of the stack is that ends with each.
    calls: Vec<(u32, usize)>,
    /// At the end of it is the text.
    text: Vec<u8>,
}

impl CallPath {
    /// The innermost call.
    pub(super) fn last(&self) -> Option<u32> {
        self.calls.last().map(|one| one.0)
    }

    /// Only so many frames stay.
    pub(super) fn cut(&mut self, frames: usize) {
        self.calls.truncate(frames);
    }

    /// Adds a call of a frame with that hash, as a number in text.
    pub(super) fn push(&mut self, call: u32, hash: &[u8]) {
        let length = self.length();
        let comma: &[u8] = if length == 0 { b"" } else { b"," };
        let all = length + comma.len() + hash.len();
        if all > self.text.len() {
            let mut longer = vec![0; (2 * all).max(FIRST)];
            let end = longer.len();
            longer[end - length..].copy_from_slice(&self.text[self.text.len() - length..]);
            self.text = longer;
        }
        let begins = self.text.len() - all;
        let new = &mut self.text[begins..begins + hash.len() + comma.len()];
        new[..hash.len()].copy_from_slice(hash);
        new[hash.len()..].copy_from_slice(comma);
        self.calls.push((call, all));
    }

    pub(super) fn hash(&self) -> u64 {
        XxHash64::oneshot(0, &self.text[self.text.len() - self.length()..])
    }

    fn length(&self) -> usize {
        self.calls.last().map_or(0, |one| one.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_has_its_text() {
        let mut path = CallPath::default();
        let hash_of = |text: &str| XxHash64::oneshot(0, text.as_bytes());
        path.push(7, b"18446744073709551615");
        path.push(8, b"0");
        path.push(9, b"12");
        assert_eq!(path.hash(), hash_of("12,0,18446744073709551615"));
        path.cut(1);
        path.push(10, b"5");
        assert_eq!(path.hash(), hash_of("5,18446744073709551615"));
        assert_eq!(path.last(), Some(10));
        let mut expected = "5,18446744073709551615".to_owned();
        for hash in 0..1000 {
            path.push(11, hash.to_string().as_bytes());
            expected = format!("{hash},{expected}");
        }
        assert_eq!(path.hash(), hash_of(&expected));
        path.cut(0);
        assert_eq!((path.hash(), path.last()), (hash_of(""), None));
    }
}
