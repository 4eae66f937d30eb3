//! `rsunwind merge`: a `perf record` of a whole system, made by an administrator, with the user
//! stacks that profiled programs took of themselves in the place of perf's own.
//!
//! Start at [`run`]. perf's samples are what is counted; each gets the stack of its thread that was
//! taken where, and about when, it was (`moments`), found by who the thread is in the recording
//! (`tasks`) and by one clock (`converter`). Samples of other programs keep perf's call chains.
//! What comes out is a recording like any other, for every output format.

mod build;
mod chain;
mod converter;
mod error;
mod images;
mod moments;
mod tasks;

pub use error::Error;

use crate::correlate;
use crate::export;
use crate::numbers::plural;
use crate::output::{self, Options, Roots};
use crate::perf_clock;
use crate::progress_bar::Working;
use crate::recording::Recording;
use crate::regular_file;
use crate::report::Selection;
use crate::symbolize::is_this_boot;
use crate::visible::say;
use build::Count;
use clap::Args as ClapArgs;
use converter::Converter;
use engine::wire::file;
use perf_data::{PerfFile, What};
use std::path::{Path, PathBuf};

/// Arguments of `rsunwind merge`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  rsunwind record -o prog.rsu -- ./program &
  perf record -a -g -k mono -o perf.data -- sleep 30    as the administrator, meanwhile
  rsunwind merge perf.data prog.rsu -o system.svg       all programs, these with their whole stacks
  rsunwind merge perf.data prog.rsu -o p.html --only    those alone, as a page
The output formats are those of `rsunwind export`.
-k mono may be left out if the programs were profiled with `rsunwind record`. A higher rate of rsunwind's (-F) finds more stacks.")]
pub struct Args {
    /// What `perf record` wrote
    #[arg(value_name = "PERF_DATA")]
    pub perf_data: PathBuf,

    /// Recordings (.rsu), segments (.seg), or session directories of the same time
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The file to write; - is standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// Its format [default: by the extension of OUT]
    #[arg(short, long)]
    pub format: Option<String>,

    /// Leave out samples of threads that were not profiled
    #[arg(long)]
    pub only: bool,

    /// What folded stacks and flame graphs begin with
    #[arg(long, value_enum, default_value_t)]
    pub roots: Roots,

    /// Which samples, and where names are looked for
    #[command(flatten)]
    pub selection: Selection,
}

/// Does what `args` ask for.
///
/// # Errors
/// Any [`Error`].
pub fn run(args: &Args) -> Result<(), Error> {
    output::choose(args.format.as_deref(), &args.output).map_err(export::Error::from)?;
    let path = &args.perf_data;
    let working = Working::begin();
    let bytes = regular_file::read(path).map_err(|error| Error::Read {
        path: path.clone(),
        error,
    })?;
    if bytes.is_empty() {
        return Err(Error::Empty { path: path.clone() });
    }
    if bytes.starts_with(&file::MAGIC.to_le_bytes()) {
        return Err(Error::Order { path: path.clone() });
    }
    let file = PerfFile::parse(&bytes).map_err(|error| Error::Malformed {
        path: path.clone(),
        error,
    })?;
    let recording = correlate::read(&args.files)?;
    let (joined, count) = join(path, &file, recording, args)?;
    let mut profile = args.selection.name(joined);
    // All is perf's, which may have looked for a while only: what the programs' own clocks say of
    // the rest of their time is no part of that.
    profile.remainders.clear();
    let selected = args.selection.filter(&mut profile);
    selected.map_err(export::Error::Read)?;
    let options = Options {
        roots: args.roots,
        names: args.selection.names(),
        output: None,
    };
    export::write_with(&profile, &args.output, args.format.as_deref(), options)?;
    drop(working);
    tell(&file, &count, args.only);
    Ok(())
}

fn join(
    path: &Path,
    file: &PerfFile,
    recording: Recording,
    args: &Args,
) -> Result<(Recording, Count), Error> {
    let path = || path.to_owned();
    if !file.events.iter().all(|event| event.is_dated()) {
        return Err(Error::Undated { path: path() });
    }
    let apart = |why| Error::Apart { path: path(), why };
    let here = recording.session.as_ref().map(|session| &session.kernel);
    if let (Some(there), Some(here)) = (&file.kernel, here)
        && there != here
    {
        return Err(apart(format!(
            "it is from another machine or boot: its kernel is {there}, that of the recording {here}"
        )));
    }
    let mut readings = recording.clocks.clone();
    if readings.is_empty() && is_this_boot(&recording) {
        // Clocks that were not read then run evenly enough to be read now.
        readings.push(perf_clock::read());
    }
    let converter = Converter::new(file.clock(), &readings)
        .map_err(|why| Error::Clock { path: path(), why })?;
    check_overlap(file, &converter, &recording).map_err(apart)?;
    Ok(build::build(
        file,
        &converter,
        recording,
        &args.selection.places(),
        args.only,
    ))
}

/// Two recordings of different times have nothing in common.
fn check_overlap(
    file: &PerfFile,
    converter: &Converter,
    recording: &Recording,
) -> Result<(), String> {
    let samples = file.records.iter().filter_map(|record| match record.what {
        What::Sample { .. } => Some(converter.monotonic(record.time)),
        _ => None,
    });
    let (first, last) = samples.fold((u64::MAX, 0), |(first, last), time| {
        (first.min(time), last.max(time))
    });
    let ours = || recording.samples.iter().map(|sample| sample.time_ns);
    let (Some(begin), Some(end)) = (ours().min(), ours().max()) else {
        return Err("there are no samples in the recording to join it with".to_owned());
    };
    if first > last {
        return Err("there are no samples in it".to_owned());
    }
    if last < begin || end < first {
        let seconds = |ns: u64| ns / 1_000_000_000;
        return Err(format!(
            "it is of another time than the recording: seconds {} to {} since the machine started, against {} to {}",
            seconds(first),
            seconds(last),
            seconds(begin),
            seconds(end)
        ));
    }
    Ok(())
}

fn tell(file: &PerfFile, count: &Count, only: bool) {
    let joined = count.cookie + count.exact + count.same_function + count.by_time;
    let program = count.ours.saturating_sub(count.profiler);
    let share = |part: u64| 100.0 * part as f64 / program.max(1) as f64;
    say(format_args!(
        "{} of {} samples of profiled threads ({:.1} %) have a stack of the thread's own: {}{} by the same instruction pointer, {} in \
         the same function, {} by time alone; {} more were taken in the profiler; {} samples of other threads {}",
        joined,
        program,
        share(joined),
        match count.cookie {
            0 => String::new(),
            some => format!("{some} by the kernel's cookie, "),
        },
        count.exact,
        count.same_function,
        count.by_time,
        count.profiler,
        count.others,
        if only {
            "are left out"
        } else {
            "keep perf's call chains"
        }
    ));
    if file.lost > 0 {
        say(format_args!("perf lost {} records", file.lost));
    }
    if file.nameless > 0 {
        let left_out = plural(file.nameless, "sample", "samples");
        say(format_args!(
            "{left_out} of perf's are left out: the kernel gave them the number of an event that is not perf's"
        ));
    }
}
