//! Reads recordings and writes profiles.

pub mod cli;
pub mod record;
pub mod recording;
pub mod sframe_cmd;
pub mod symbolize;
