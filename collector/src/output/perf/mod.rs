//! The `perf.data` file, which perf's own `report` and `script` read. Here is what is around the
//! records: header, attributes of the events, and what perf wants to know of the machine. The
//! records are `timeline`'s, with `encode`, `mappings` and `named_code`.
//!
//! Two forms are written. The *plain* one has whole call chains in its samples, and any perf reads
//! it. In the *deferred* one a sample ends in `PERF_CONTEXT_USER_DEFERRED` and a cookie, and the
//! user's stack follows once in a `PERF_RECORD_CALLCHAIN_DEFERRED` of that cookie, as Linux 6.19
//! and later writes them itself; perf from that version on puts them together.
//!
//! Code of no file (a JIT's, another language's, and the notes that stand for missing frames) has
//! its names in a perf map beside it.

mod encode;
mod mappings;
mod named_code;
mod symbol_file;
#[cfg(test)]
mod tests;
mod timeline;

use super::{Companion, Format, Holds, Options, started_at};
use crate::profile::Profile;
use crate::visible::Shown;
use engine::perf_event::kind::SOFTWARE;
use engine::perf_event::software::TASK_CLOCK;
use engine::perf_event::{Attributes, CLOCK_MONOTONIC, flag, sample};
use engine::wire::offer::CPU_EVENT;
use perf_data::format::{HEADER_SIZE, MAGIC, feature};
use std::io::{self, Write};
use std::path::PathBuf;
use timeline::Timeline;

/// The format, with user stacks in the samples or apart.
#[derive(Debug)]
pub struct PerfData {
    /// User stacks are records of their own.
    pub deferred: bool,
}

impl Format for PerfData {
    fn name(&self) -> &'static str {
        if self.deferred {
            "perf-data-deferred"
        } else {
            "perf-data"
        }
    }

    fn about(&self) -> &'static str {
        if self.deferred {
            "the same with user stacks apart, as Linux 6.19 defers them"
        } else {
            "for perf report and perf script"
        }
    }

    fn extensions(&self) -> &'static [&'static str] {
        if self.deferred {
            &[".deferred.data"]
        } else {
            &[".data"]
        }
    }

    fn holds(&self) -> Holds {
        Holds::CpuTime
    }

    fn write(&self, profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
        if profile.shown_event != CPU_EVENT {
            let why = "perf.data is written of CPU time only: leave --event out";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let timeline = Timeline::new(profile, self.deferred, symbol_file(options).as_deref());
        let attributes = attributes(profile, self.deferred, timeline.kernel);
        let entry = attributes.len() as u64 + 16;
        let data_start = HEADER_SIZE + entry;
        let data_length: u64 = timeline.records().map(|record| record.len() as u64).sum();
        let features = features(profile, &timeline, &attributes);
        let mut bits = [0u64; 4];
        for (number, _) in &features {
            bits[(number / 64) as usize] |= 1 << (number % 64);
        }
        out.write_all(&MAGIC)?;
        let sizes = [HEADER_SIZE, entry];
        let sections = [HEADER_SIZE, entry, data_start, data_length, 0, 0];
        longs(out, sizes.into_iter().chain(sections).chain(bits))?;
        out.write_all(&attributes)?;
        longs(out, [0, 0])?; // no numbers: there is one event, and it is every sample's
        for record in timeline.records() {
            out.write_all(record)?;
        }
        let mut at = data_start + data_length + 16 * features.len() as u64;
        for (_, content) in &features {
            longs(out, [at, content.len() as u64])?;
            at += content.len() as u64;
        }
        for (_, content) in &features {
            out.write_all(content)?;
        }
        Ok(())
    }

    fn companion(&self, profile: &Profile, options: &Options) -> Option<Companion> {
        let path = PathBuf::from(symbol_file(options)?);
        let content = Timeline::new(profile, self.deferred, None).names.file()?;
        Some(Companion {
            path,
            content,
            about: "names of code that no file has, for perf",
        })
    }
}

/// Where names go that no other file has.
fn symbol_file(options: &Options) -> Option<String> {
    let output = options.output.as_ref()?;
    Some(format!("{}.symbols", output.shown()))
}

fn longs(out: &mut dyn Write, values: impl IntoIterator<Item = u64>) -> io::Result<()> {
    for value in values {
        out.write_all(&value.to_le_bytes())?;
    }
    Ok(())
}

/// The sampling period that most of the profile has.
fn period_ns(profile: &Profile) -> u64 {
    let first = profile.samples.first();
    first.map_or(1_000_000, |sample| profile.period_ns(sample.thread))
}

/// `perf_event_attr` of what was sampled: CPU time of each thread, dated by CLOCK_MONOTONIC.
fn attributes(profile: &Profile, deferred: bool, kernel: bool) -> Vec<u8> {
    let mut flags = flag::INHERIT
        | flag::EXCLUDE_HV
        | flag::MMAP
        | flag::COMM
        | flag::TASK
        | flag::SAMPLE_ID_ALL
        | flag::MMAP2
        | flag::COMM_EXEC
        | flag::USE_CLOCKID;
    if !kernel {
        flags |= flag::EXCLUDE_KERNEL;
    }
    if deferred {
        flags |= flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT;
    }
    let fields = sample::IP | sample::TID | sample::TIME | sample::CALLCHAIN | sample::PERIOD;
    let type_and_size = u64::from(SOFTWARE) | u64::from(Attributes::SIZE) << 32;
    let clock = u64::from(CLOCK_MONOTONIC.cast_unsigned()) << 32;
    let words = [
        type_and_size,
        TASK_CLOCK,
        period_ns(profile),
        fields,
        0, // read_format
        flags,
        1,     // wakeup_events
        0,     // config1
        0,     // config2
        0,     // branch_sample_type
        0,     // sample_regs_user
        clock, // sample_stack_user, clockid
        0,     // sample_regs_intr
        0,     // aux_watermark, sample_max_stack
        0,     // aux_sample_size
        0,     // sig_data
    ];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What is said of the machine and the command, in the order of the features' numbers.
fn features(profile: &Profile, timeline: &Timeline, attributes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let recording = &profile.recording;
    let mut all = Vec::new();
    if let Some(session) = &recording.session {
        all.push((feature::HOSTNAME, text(&session.host)));
        all.push((feature::OSRELEASE, text(&session.kernel)));
    }
    let version = concat!("rsunwind ", env!("CARGO_PKG_VERSION"));
    all.push((feature::VERSION, text(version)));
    all.push((feature::ARCH, text(std::env::consts::ARCH)));
    if let Some(session) = &recording.session {
        let online = session.processors.to_le_bytes();
        all.push((feature::NRCPUS, [online, online].concat()));
    }
    let command = recording.session.as_ref().map(|session| &session.command);
    if let Some(command) = command.filter(|command| !command.is_empty()) {
        let mut content = u32::try_from(command.len())
            .unwrap_or(0)
            .to_le_bytes()
            .to_vec();
        command
            .iter()
            .for_each(|argument| content.extend(text(argument)));
        all.push((feature::CMDLINE, content));
    }
    let name = if timeline.kernel {
        "task-clock"
    } else {
        "task-clock:u"
    };
    let mut event = [1, Attributes::SIZE].map(u32::to_le_bytes).concat();
    event.extend_from_slice(attributes);
    event.extend_from_slice(&0u32.to_le_bytes());
    event.extend(text(name));
    all.push((feature::EVENT_DESC, event));
    let (first, last) = timeline.span;
    let span = [first, last].map(u64::to_le_bytes).concat();
    all.push((feature::SAMPLE_TIME, span));
    all.push((feature::CLOCKID, 1u64.to_le_bytes().to_vec()));
    let started = started_at(profile);
    if started > 0 {
        let clock = nix::libc::CLOCK_MONOTONIC.cast_unsigned();
        let mut content = [1, clock].map(u32::to_le_bytes).concat();
        for time in [started, profile.start_ns()] {
            content.extend_from_slice(&time.to_le_bytes());
        }
        all.push((feature::CLOCK_DATA, content));
    }
    all
}

/// Text as the features have it: its length, with padding, and a zero byte at its end.
fn text(text: &str) -> Vec<u8> {
    let padded = (text.len() + 1).next_multiple_of(64);
    let mut content = u32::try_from(padded).unwrap_or(0).to_le_bytes().to_vec();
    content.extend_from_slice(text.as_bytes());
    content.resize(padded + 4, 0);
    content
}
