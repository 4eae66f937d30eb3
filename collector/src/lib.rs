//! Reads recordings and writes profiles.

pub mod recording;
