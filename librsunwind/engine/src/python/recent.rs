//! What a walk found out about the code objects that it met last, in the words of a language's
//! state.

/// Words of [`Codes`].
pub const WORDS: usize = 16;

/// The numbers of code objects that a walk met last, by their addresses.
#[derive(Debug)]
pub struct Codes<'a>(&'a mut [u64; WORDS]);

impl<'a> Codes<'a> {
    /// In zeroed memory, or what was kept there.
    pub const fn new(words: &'a mut [u64; WORDS]) -> Self {
        Self(words)
    }

    fn slot(&mut self, code: u64) -> Option<&mut [u64; 2]> {
        let (slots, _) = self.0.as_chunks_mut::<2>();
        let count = slots.len();
        // Such objects are longer.
        slots.get_mut((code as usize >> 4).checked_rem(count)?)
    }

    /// That of a code object.
    pub fn find(&mut self, code: u64) -> Option<u64> {
        let [known, check] = self.slot(code)?;
        (*known == code).then_some(*check)
    }

    /// Keeps one.
    pub fn keep(&mut self, code: u64, check: u64) {
        if let Some(slot) = self.slot(code) {
            *slot = [code, check];
        }
    }
}
