//! Reads recordings and writes profiles.

#[cfg(feature = "agent")]
pub mod agent;
mod allocator;
mod binary;
pub mod charge;
pub mod cli;
#[cfg(feature = "agent")]
pub mod clickhouse;
pub mod clock;
mod copy;
pub mod correlate;
mod cpu_rings;
mod cut_short;
pub mod diff;
pub mod doctor;
pub mod dump;
mod exec_watch;
pub mod export;
mod gentle;
#[cfg(feature = "agent")]
mod gzip;
#[cfg(feature = "agent")]
mod http;
mod inside;
mod intern;
mod interpreters;
mod interrupt;
mod jit_map;
mod jit_options;
mod kept;
pub mod merge;
mod numbers;
mod obstacle;
mod off_cpu;
pub mod output;
mod perf_clock;
mod perf_event;
mod preload_library;
mod processes;
pub mod profile;
mod progress;
mod progress_bar;
pub mod record;
pub mod recording;
mod regular_file;
mod remote;
mod remote_memory;
pub mod report;
#[cfg(feature = "agent")]
mod resolver;
mod seccomp;
#[cfg(test)]
mod seeds;
mod segments;
pub mod sframe_cmd;
pub mod summary;
pub mod symbolize;
pub mod target;
mod temporary;
#[cfg(all(test, feature = "agent"))]
mod test_server;
pub mod top;
mod underway;
mod units;
mod unwind;
mod urgency;
pub mod view;
pub mod visible;
mod whereabouts;
