//! How an interpreter's memory is read: in a walk by guarded loads, from outside by the kernel, in
//! tests from what is made up.

/// Where some words of an object are, which lie near each other and are read at once. How far they
/// reach is found here, and not at each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<const COUNT: usize> {
    // Of four bytes, so that no sum with them comes around to where it began.
    offsets: [u32; COUNT],
    lowest: u32,
    highest: u32,
}

impl<const COUNT: usize> Fields<COUNT> {
    /// At these offsets, of which the last one possible stands for those that are beyond it.
    #[inline]
    pub const fn at(offsets: [u64; COUNT]) -> Self {
        const { assert!(COUNT > 0) };
        let mut fields = Self {
            offsets: [0; COUNT],
            lowest: u32::MAX,
            highest: 0,
        };
        let (mut from, mut to) = (offsets.as_slice(), fields.offsets.as_mut_slice());
        while let ([offset, others @ ..], [place, rest @ ..]) = (from, to) {
            let most = u32::MAX as u64;
            let offset = if *offset < most { *offset } else { most } as u32;
            *place = offset;
            if offset < fields.lowest {
                fields.lowest = offset;
            }
            if offset > fields.highest {
                fields.highest = offset;
            }
            (from, to) = (others, rest);
        }
        fields
    }

    /// These.
    #[inline]
    pub fn offsets(&self) -> [u64; COUNT] {
        self.offsets.map(u64::from)
    }

    /// The lowest and the highest of them.
    #[inline]
    pub fn reach(&self) -> (u64, u64) {
        (self.lowest.into(), self.highest.into())
    }
}

/// Memory that may be read, or not.
pub trait Memory {
    /// The word at an address.
    fn load(&self, address: u64) -> Option<u64>;
    /// Copies bytes that another thread may unmap at this moment.
    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()>;

    /// Copies bytes that stay as long as what [`Memory::load`] reads, which may take less.
    fn bytes(&self, address: u64, to: &mut [u8]) -> Option<()> {
        self.copy(address, to)
    }

    /// Some words of an object; `None` if one of them cannot be read.
    #[inline]
    fn fields<const COUNT: usize>(
        &self,
        object: u64,
        fields: &Fields<COUNT>,
    ) -> Option<[u64; COUNT]> {
        let mut words = [0; COUNT];
        for (word, offset) in words.iter_mut().zip(fields.offsets()) {
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
