//! The `perf.data` file, as perf writes it: what stands where in it (`format`), and a reader of it
//! ([`read`]).
//!
//! Not here: writing one from a profile ([`crate::output`]).

mod attributes;
mod bytes;
pub(crate) mod format;
mod mapped_files;
pub(crate) mod read;

pub(crate) use attributes::{Clock, Event};
pub(crate) use bytes::Malformed;
pub(crate) use format::context;
pub(crate) use mapped_files::Images;
