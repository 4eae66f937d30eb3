//! Reads recordings and writes profiles.

pub mod cli;
pub mod export;
pub mod fallback;
pub mod merge;
mod obstacle;
pub mod output;
mod perf_data;
mod perf_event;
pub mod profile;
pub mod record;
pub mod recording;
pub mod report;
pub mod sframe_cmd;
pub mod summary;
pub mod symbolize;
