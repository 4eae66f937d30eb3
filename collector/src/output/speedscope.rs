//! speedscope's own format: a profile for each thread, with each of its samples in the order of
//! time and what it weighs, in ns (or in what the event counted).
//!
//! Its schema is <https://www.speedscope.app/file-format-schema.json>. It is written sample by
//! sample: nothing of the file is held in memory.

use super::{Format, Options, command, thread_name};
use crate::profile::{Profile, Sample, is_time};
use crate::recording::ThreadId;
use serde_json::json;
use std::io::{self, Write};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

pub(super) struct Speedscope;

impl Format for Speedscope {
    fn name(&self) -> &'static str {
        "speedscope"
    }

    fn about(&self) -> &'static str {
        "for speedscope.app, a profile for each thread"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".speedscope.json"]
    }

    fn write(&self, profile: &Profile, _: &Options, out: &mut dyn Write) -> io::Result<()> {
        let exporter = concat!("rsunwind ", env!("CARGO_PKG_VERSION"));
        write!(
            out,
            r#"{{"$schema":"{SCHEMA}","exporter":"{exporter}","name":{},"#,
            json!(command(profile))
        )?;
        out.write_all(br#""shared":{"frames":["#)?;
        for (index, function) in profile.functions.iter().enumerate() {
            let mut frame = json!({"name": &*function.name, "file": profile.image_name(function)});
            if function.begins > 0 {
                frame["line"] = function.begins.into();
            }
            write!(out, "{}{frame}", comma(index))?;
        }
        out.write_all(br#"]},"profiles":["#)?;
        let mut samples: Vec<&Sample> = profile.weighed().collect();
        samples.sort_by_key(|sample| sample.thread); // which keeps the order of time
        let threads = samples.chunk_by(|a, b| a.thread == b.thread);
        for (index, samples) in threads.enumerate() {
            out.write_all(comma(index).as_bytes())?;
            thread(profile, samples[0].thread, samples, out)?;
        }
        out.write_all(b"]}\n")
    }
}

fn thread(
    profile: &Profile,
    id: ThreadId,
    samples: &[&Sample],
    out: &mut dyn Write,
) -> io::Result<()> {
    let thread = &profile.recording.threads[id.index()];
    let process = &profile.recording.processes[thread.process.index()];
    let name = thread_name(profile, id);
    let name = match thread.tid == process.pid {
        true => format!("{name} ({})", thread.tid),
        false => format!(
            "{name} ({}) of {} ({})",
            thread.tid,
            process.name(),
            process.pid
        ),
    };
    let unit = match is_time(profile.shown_event) {
        true => "nanoseconds",
        false => "none",
    };
    let weights = || samples.iter().map(|sample| profile.time_ns(sample));
    let end = weights().fold(0, u64::saturating_add);
    write!(
        out,
        r#"{{"type":"sampled","name":{},"unit":"{unit}","startValue":0,"endValue":{end},"samples":["#,
        json!(name)
    )?;
    let mut stack = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        stack.clear();
        stack.extend(
            profile
                .walk(sample.stack)
                .map(|frame| frame.function.index()),
        );
        stack.reverse();
        write!(out, "{}{}", comma(index), json!(stack))?;
    }
    out.write_all(br#"],"weights":["#)?;
    for (index, weight) in weights().enumerate() {
        write!(out, "{}{weight}", comma(index))?;
    }
    out.write_all(b"]}")
}

/// In front of all but the first.
const fn comma(index: usize) -> &'static str {
    match index {
        0 => "",
        _ => ",",
    }
}
