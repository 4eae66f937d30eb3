//! The `perf.data` file, which perf's own `report` and `script` read: the format itself (`format`), written from a profile
//! (`write`, with `records`, `mappings`, `names` and `timeline`).
//!
//! Two forms are written. The *plain* one has whole call chains in its samples, and any perf reads it. In the *deferred* one a sample ends
//! in `PERF_CONTEXT_USER_DEFERRED` and a cookie, and the user's stack follows once in a `PERF_RECORD_CALLCHAIN_DEFERRED` of that cookie,
//! as Linux 6.19 and later writes them itself; perf from that version on puts them together.
//!
//! Code of no file (a JIT's, another language's, and the notes that stand for missing frames) has its names in a perf map beside it.

mod attributes;
mod bytes;
mod format;
mod images;
mod mappings;
mod names;
pub mod read;
mod records;
mod symbol_file;
#[cfg(test)]
mod tests;
mod timeline;
mod write;

pub(crate) use attributes::{Clock, Event};
pub(crate) use bytes::Malformed;
pub(crate) use format::context;
pub(crate) use images::Images;
pub use write::PerfData;
