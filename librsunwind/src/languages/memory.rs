//! How an interpreter's memory is read in a walk by the languages that are part of the runtime: as
//! the loads and copies that others ask for by their cursor, without the way through its functions.
//!
//! # Safety
//! What is copied to is a slice of that length.
#![allow(unsafe_code)]

use super::call::Call;
use engine::interpreter::memory::{Fields, Memory};

impl Memory for Call<'_> {
    #[inline]
    fn load(&self, address: u64) -> Option<u64> {
        self.noted(self.reads.load(address)).ok()
    }

    #[inline]
    fn fields<const COUNT: usize>(
        &self,
        object: u64,
        fields: &Fields<COUNT>,
    ) -> Option<[u64; COUNT]> {
        self.noted(self.reads.fields(object, fields)).ok()
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        // SAFETY: see the module.
        let copied = unsafe { self.reads.copy(address, to.as_mut_ptr(), to.len()) };
        self.noted(copied).ok()
    }

    fn bytes(&self, address: u64, to: &mut [u8]) -> Option<()> {
        // SAFETY: see the module.
        let read = unsafe { self.reads.bytes(address, to.as_mut_ptr(), to.len()) };
        self.noted(read).ok()
    }
}
