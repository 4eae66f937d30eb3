//! Building short texts in fixed buffers, without `core::fmt`.

/// Longest path taken, with its zero byte.
pub const PATH_SIZE: usize = 1024;

/// A text of at most `N` bytes; what does not fit is cut off.
#[derive(Clone, Copy, Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }
}

impl<const N: usize> Text<N> {
    /// An empty text, for statics.
    pub const EMPTY: Self = Self {
        bytes: [0; N],
        length: 0,
    };

    /// An empty text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes.
    #[must_use]
    pub fn then(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            if let Some(slot) = self.bytes.get_mut(self.length) {
                *slot = *byte;
                self.length = self.length.wrapping_add(1);
            }
        }
        self
    }

    /// Adds a number, decimal.
    #[must_use]
    pub fn decimal(self, value: u64) -> Self {
        self.digits(value, 10)
    }

    /// Adds a number, hexadecimal.
    #[must_use]
    pub fn hexadecimal(self, value: u64) -> Self {
        self.digits(value, 16)
    }

    fn digits(self, value: u64, base: u64) -> Self {
        let mut digits = [0u8; 20];
        let mut rest = value;
        let mut used = 0usize;
        for slot in digits.iter_mut().rev() {
            *slot = *b"0123456789abcdef"
                .get((rest % base) as usize)
                .unwrap_or(&b'?');
            rest = rest.checked_div(base).unwrap_or(0);
            used = used.wrapping_add(1);
            if rest == 0 {
                break;
            }
        }
        self.then(digits.get(digits.len().wrapping_sub(used)..).unwrap_or(&[]))
    }

    /// What is there.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// What is there, as a path for the kernel: ended by a zero byte, which is forced if the text
    /// was cut off.
    #[must_use]
    pub fn path(&mut self) -> &[u8] {
        self.length = self.length.min(N.saturating_sub(1));
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = 0;
        }
        self.bytes.get(..self.length.wrapping_add(1)).unwrap_or(&[])
    }

    /// Whether nothing is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Copies as much as fits; gives the part written. Unlike `copy_from_slice` it cannot panic.
pub fn copy<'t>(to: &'t mut [u8], from: &[u8]) -> &'t [u8] {
    let length = to.len().min(from.len());
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    to.get(..length).unwrap_or(&[])
}

/// Reads a decimal number; `None` if there is anything else.
pub fn parse_decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then_some(())?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_built_and_cut() {
        let mut text = Text::<16>::new()
            .then(b"a=")
            .decimal(0)
            .then(b",")
            .hexadecimal(0xbeef);
        assert_eq!(text.bytes(), b"a=0,beef");
        assert_eq!(text.path(), b"a=0,beef\0");
        let mut long = Text::<4>::new().decimal(u64::MAX);
        assert_eq!(long.bytes(), b"1844");
        assert_eq!(long.path(), b"184\0");
    }

    #[test]
    fn numbers_are_read_or_refused() {
        assert_eq!(parse_decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"-1", b"1x"] {
            assert_eq!(parse_decimal(bad), None);
        }
    }
}
