//! How an interpreter's memory is read: in a walk by guarded loads, from outside by the kernel, in
//! tests from what is made up.

/// Memory that may be read, or not.
pub trait Memory {
    /// The word at an address.
    fn load(&self, address: u64) -> Option<u64>;
    /// Copies bytes that another thread may unmap at this moment.
    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()>;

    /// The word at the sum of two numbers.
    fn at(&self, address: u64, offset: u64) -> Option<u64> {
        self.load(address.checked_add(offset)?)
    }
}
