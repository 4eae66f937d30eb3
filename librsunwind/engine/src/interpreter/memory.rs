//! How an interpreter's memory is read: in a walk by guarded loads, from outside by the kernel, in
//! tests from what is made up.

/// Memory that may be read, or not.
pub trait Memory {
    /// The word at an address.
    fn load(&self, address: u64) -> Option<u64>;
    /// Copies bytes that another thread may unmap at this moment.
    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()>;

    /// So many words from an address on, of what can be read whole if it can be read.
    #[inline]
    fn words<const COUNT: usize>(&self, address: u64) -> Option<[u64; COUNT]> {
        let mut offsets = [0; COUNT];
        let places = offsets.iter_mut().zip((0..).step_by(8));
        places.for_each(|(place, offset)| *place = offset);
        self.fields(address, offsets)
    }

    /// The words of an object at these offsets, which lie near each other; `None` if one of them
    /// cannot be read.
    #[inline]
    fn fields<const COUNT: usize>(
        &self,
        object: u64,
        offsets: [u64; COUNT],
    ) -> Option<[u64; COUNT]> {
        let mut words = [0; COUNT];
        for (word, offset) in words.iter_mut().zip(offsets) {
            *word = self.at(object, offset)?;
        }
        Some(words)
    }

    /// The word at the sum of two numbers.
    #[inline]
    fn at(&self, address: u64, offset: u64) -> Option<u64> {
        self.load(address.checked_add(offset)?)
    }
}
