//! Recordings in their place: how they are named, how one that is done takes its name without any
//! other being lost, which one is meant where none is named, and what killed ones left.
//!
//! Not here: what is in them (`recording`), and the session that fills one (`record`).

mod abandoned;
mod name;
mod newest;
mod place;

pub(crate) use abandoned::{RECORDING_LINK, SESSION_PREFIX, places, room_in, tell};
pub(crate) use name::{DEFAULT, expanded};
pub use newest::NoneHere;
pub(crate) use newest::{found, newest_but, or_newest, two_newest};
pub(crate) use place::{Begun, begin, real};
