//! How an interpreter's memory is read in a walk: through its cursor.

use super::api::Cursor;
use engine::interpreter::memory::Memory;

impl Memory for Cursor<'_> {
    fn load(&self, address: u64) -> Option<u64> {
        Cursor::load(self, address).ok()
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        Cursor::copy(self, address, to).ok()
    }
}
