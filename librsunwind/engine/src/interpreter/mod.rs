//! What those who read the structures of an interpreter have in common, whoever they are.
//!
//! | file | |
//! |---|---|
//! | [`memory`] | how they read |
//! | [`utf8`] | characters of strings, as text |

#[cfg(test)]
pub(crate) mod made;
pub mod memory;
pub mod utf8;
#[cfg(test)]
use memory::Memory;
