//! The text that `perf script` prints, which stackcollapse-perf.pl, FlameScope, speedscope and the
//! Firefox Profiler read.
//!
//! ```text
//! comm pid/tid [cpu] seconds.micros: period event:
//!         address symbol+0xoffset (module)     from leaf to root; inlined ones "symbol (inlined)"
//! ```

use super::{Format, Location, Options, locations, thread_name};
use crate::profile::{Mode, Profile, Sample};
use engine::address::{CodeAddress, RuntimeAddress};
use engine::wire::offer::CPU_EVENT;
use std::io::{self, Write};

pub(super) struct PerfScript;

impl Format for PerfScript {
    fn name(&self) -> &'static str {
        "perf-script"
    }

    fn about(&self) -> &'static str {
        "every sample as text, as perf script prints it"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".perf", ".perf-script"]
    }

    fn write(&self, profile: &Profile, _: &Options, out: &mut dyn Write) -> io::Result<()> {
        for sample in &profile.samples {
            head(profile, sample, out)?;
            for location in locations(profile, sample.stack) {
                frame(profile, &location, out)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

fn head(profile: &Profile, sample: &Sample, out: &mut dyn Write) -> io::Result<()> {
    let thread = &profile.recording.threads[sample.thread.index()];
    let process = &profile.recording.processes[thread.process.index()];
    let name = thread_name(profile, sample.thread);
    let (seconds, rest) = (
        sample.time_ns / 1_000_000_000,
        sample.time_ns % 1_000_000_000,
    );
    writeln!(
        out,
        "{name} {}/{} [000] {seconds}.{:06}: {:10} {}: ",
        process.pid,
        thread.tid,
        rest / 1000,
        profile.time_ns(sample),
        match sample.event {
            CPU_EVENT => "task-clock:u".to_owned(),
            event => profile.event_name(event),
        }
    )
}

fn frame(profile: &Profile, location: &Location<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some(outer) = location.outer() else {
        return Ok(());
    };
    let (address, lookup) = match outer.address {
        Some(address) => (raw(address), address.lookup()),
        None => (RuntimeAddress(0), RuntimeAddress(0)),
    };
    for inlined in location.functions.iter().take(location.functions.len() - 1) {
        let name = &profile.function(inlined).name;
        writeln!(out, "\t{:16x} {name} (inlined)", address.0)?;
    }
    let function = profile.function(outer);
    let module = match (function.image, function.mode) {
        (Some(id), _) if !profile.symbols.images[id.index()].path.is_empty() => {
            &profile.symbols.images[id.index()].path
        }
        (_, Mode::Kernel) => "[kernel.kallsyms]",
        (_, Mode::Language(id)) => &profile.recording.languages[id.index()],
        _ => "[unknown]",
    };
    write!(out, "\t{:16x} {}", address.0, function.name)?;
    if let Some(start) = outer.function_start {
        // The return address may stand one byte behind what was looked up.
        let beyond = address.0.wrapping_sub(lookup.0);
        let offset = outer.file_address.wrapping_sub(start).wrapping_add(beyond);
        write!(out, "+{offset:#x}")?;
    }
    writeln!(out, " ({module})")
}

fn raw(address: CodeAddress) -> RuntimeAddress {
    match address {
        CodeAddress::Instruction(at) | CodeAddress::Return(at) => at,
    }
}
