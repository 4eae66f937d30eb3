//! What V8's structures say of a frame, whoever reads them: of Node 20, 22 and 24. Nothing here
//! knows where the memory is; what cannot be read, or is no such structure, is `None`.
//!
//! ```text
//! frame ─► JSFunction ─► SharedFunctionInfo ─► ScopeInfo: name, place in the source
//!   └► BytecodeArray: lines          ├► Script: file, source
//!                                    └► Code of the baseline compiler: lines
//! ```
//!
//! | file | |
//! |---|---|
//! | [`layout`] | where fields are, in each version |
//! | [`frame`] | how a frame stands, and which function it says it runs |
//! | [`code`] | what a frame runs: its function, told from others, and described |
//! | [`met`] | what frames run that are like others shortly before |
//! | [`proof`] | whose a frame is that was copied a while ago |
//! | `heap` | objects and their types |
//! | `function` | functions: told from others, and named |
//! | `lines` | which line of the source a character is on |
//! | `rows` | from which characters bytecodes come |
//! | `optimised` | where in the source calls of optimised code are |
//! | `maglev` | the same of what Maglev made |
//! | `baseline` | the same of what the baseline compiler made of them |
//! | `bytecodes` | how long these are |
//! | `bytes` | tables as they are read |
//! | `strings` | text of string objects |

mod baseline;
mod bytecodes;
mod bytes;
pub mod code;
pub mod frame;
mod function;
mod heap;
pub mod layout;
mod lines;
mod maglev;
pub mod met;
mod optimised;
pub mod proof;
mod rows;
mod strings;
#[cfg(test)]
mod tests;
