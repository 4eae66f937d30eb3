//! Characters of interpreters' strings as UTF-8, as much as there is room for.

/// Text as it grows.
#[derive(Debug)]
pub struct Utf8<'t> {
    to: &'t mut [u8],
    length: usize,
}

impl<'t> Utf8<'t> {
    /// Nothing yet.
    pub const fn new(to: &'t mut [u8]) -> Self {
        Self { to, length: 0 }
    }

    /// Adds a character; `None` if there is no room. What is none (a surrogate) becomes U+FFFD.
    pub fn put(&mut self, number: u32) -> Option<()> {
        let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
        let number = character as u32;
        let size = character.len_utf8();
        let end = self.length.checked_add(size)?;
        let room = self.to.get_mut(self.length..end)?;
        let mut rest = number;
        for byte in room.iter_mut().skip(1).rev() {
            *byte = 0x80 | (rest & 0x3f) as u8;
            rest >>= 6;
        }
        let mark = match size {
            1 => 0,
            2 => 0xc0,
            3 => 0xe0,
            _ => 0xf0,
        };
        *room.first_mut()? = mark | rest as u8;
        self.length = end;
        Some(())
    }

    /// What there is.
    pub fn text(self) -> Option<&'t [u8]> {
        self.to.get(..self.length)
    }
}
