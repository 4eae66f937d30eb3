//! What CPython's structures say of a thread's frames, whoever reads them: 3.9 to 3.15. Nothing
//! here knows where the memory is; what cannot be read, or is no such structure, is `None`.
//!
//! ```text
//! thread state ─► innermost entry ─► its frames ─► code object: name, file, lines; position in it
//!                  └► next outer entry ─► …
//! ```
//!
//! | file | |
//! |---|---|
//! | [`layout`] | where fields are, in each version |
//! | [`entries`] | the entries of a thread, and the frames of each |
//! | [`threads`] | all thread states |
//! | [`tasks`] | what waits for the running task |
//! | [`names`] | what `threading` calls a thread |
//! | [`code`] | what a frame runs: its code object, told from others, and described |
//! | [`recent`] | what a walk found out about the code objects that it met last |
//! | `strings` | text of its string objects |

pub mod code;
pub mod entries;
pub mod layout;
pub mod names;
pub mod recent;
mod strings;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod threads;
