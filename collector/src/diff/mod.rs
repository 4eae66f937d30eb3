//! `rsunwind diff`: what has changed from one recording to another.
//!
//! Start at [`run`]. Not here: how differences are told from chance (`measure`), and the picture
//! ([`crate::output`]).

mod alike;
mod measure;
mod sentences;
#[cfg(test)]
mod tests;

use crate::kept::{self, NoneHere};
use crate::output::{Options, Roots, WriteError, atomic, differential};
use crate::profile::Profile;
use crate::progress;
use crate::progress_bar::{self, Working};
use crate::report::look::{Look, padded, without_beginning, without_end, without_middle};
use crate::report::{self, By, Selection, Sort, columns, pager};
use crate::visible::say;
use clap::Args as ClapArgs;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use console::measure_text_width;
use measure::{Comparison, Measure, compare};
use sentences::{change, grown, own, words};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// The status to exit with where something has grown above the limit.
const GROWN: u8 = 3;
/// Rows, if nobody says how many.
const ROWS: usize = 40;
/// The widest that the column of binaries becomes.
const WIDEST_ORIGIN: usize = 20;

/// Arguments of `rsunwind diff`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Shares are compared, which hides a program that became slower everywhere alike. --time compares times, if both runs did the same work; --per compares times per operation, if one did more.
A difference is called noise (~) if sampling alone explains it: it is within three standard deviations of Poisson's distribution. That covers nothing else that makes runs differ: compare several runs.

Examples:
  rsunwind diff                                                the newest recording here, and the one before it
  rsunwind diff before.rsu after.rsu
  rsunwind diff before.rsu after.rsu -o diff.svg               red has grown, blue has shrunk
  rsunwind diff before.rsu after.rsu --per 1000,1500           CPU time of an operation
  rsunwind diff before.rsu after.rsu --time --fail-above 5%    status 3 if something has grown by more")]
pub struct Args {
    /// The recording before [default: the one before the newest here]
    #[arg(value_name = "BEFORE")]
    pub before: Option<PathBuf>,

    /// The recording after [default: the newest here]
    #[arg(value_name = "AFTER")]
    pub after: Option<PathBuf>,

    /// Compare times (or counts) instead of shares
    #[arg(long, group = "measure")]
    pub time: bool,

    /// Compare times (or counts) per operation: how many there were, in both or in each (N,M)
    #[arg(long, value_name = "N[,M]", group = "measure", value_parser = operations)]
    pub per: Option<[f64; 2]>,

    /// Exit with status 3 if a function (or with --time and --per the total) has grown by more than
    /// this share of the whole before, such as 5%, and by more than noise
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_above: Option<f64>,

    /// What a row stands for
    #[arg(long, value_enum, default_value_t)]
    pub by: By,

    /// Which time is compared: in itself, or with what it called
    #[arg(short, long, default_value = "self", value_parser = compared())]
    pub sort: Sort,

    /// At most this many rows
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = ROWS)]
    pub limit: usize,

    /// Write a flame graph (SVG) of both instead
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,

    /// Print the table without a pager
    #[arg(long)]
    pub no_pager: bool,

    /// Which samples, and where names are looked for
    #[command(flatten)]
    pub selection: Selection,
}

/// What can be compared. The rows are always in the order of the change.
fn compared() -> impl TypedValueParser<Value = Sort> {
    let own = PossibleValue::new("self").help("Time in a function itself");
    let total = PossibleValue::new("total").help("Time with what it called");
    let names = PossibleValuesParser::new([own, total]);
    names.map(|name| match &*name {
        "total" => Sort::Total,
        _ => Sort::Own,
    })
}

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A recording cannot be read, or nothing in it is what was asked for.
    #[error(transparent)]
    Read(#[from] report::Error),
    /// The flame graph cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It is to be something else.
    #[error("diff writes flame graphs only: name a file that ends in .svg with -o")]
    Format,
    /// Nothing can be compared with nothing.
    #[error("{0} has no sample of what is compared")]
    Empty(String),
    /// The recordings show different events.
    #[error("one recording shows {0}, the other {1}: choose with --event")]
    Events(String, String),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Read(error) => error.exit_status(),
            Self::Format | Self::Events(..) => 2,
            Self::Write(_) | Self::Empty(_) => 1,
        }
    }
}

/// Does what `args` ask for.
///
/// # Errors
/// Any [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    if let Some(path) = &args.output
        && path.as_os_str() != "-"
        && path.extension().is_none_or(|extension| extension != "svg")
    {
        return Err(Error::Format);
    }
    let by_thread = args.by == By::Thread;
    let open = |file: &PathBuf| {
        let profile = args.selection.open(std::slice::from_ref(file), by_thread)?;
        match profile.whole() {
            0 => {
                progress_bar::end();
                report::complain(&profile);
                Err(Error::Empty(file.display().to_string()))
            }
            _ => Ok(profile),
        }
    };
    let [before, after] = args.recordings().map_err(report::Error::from)?;
    let working = Working::begin();
    let (before, after) = (open(&before)?, open(&after)?);
    if before.shown_event != after.shown_event && before.subject() != after.subject() {
        return Err(Error::Events(before.subject(), after.subject()));
    }
    let profiles = [&before, &after];
    let measure = args.measure();
    let names = args.selection.names();
    progress::begin("comparing", 0);
    let comparison = compare(profiles, measure, args.by, args.sort, names);
    let shown = match &args.output {
        Some(path) => picture(args, path, profiles, measure).map(|()| None)?,
        None => Some(text(
            args,
            profiles,
            measure,
            &comparison,
            Look::of_stdout().of_names(names),
        )),
    };
    drop(working);
    profiles.into_iter().for_each(report::complain);
    if let Some(text) = shown {
        pager::show(&text, args.no_pager).map_err(report::Error::from)?;
    }
    let grown = args
        .fail_above
        .map(|limit| grown(&comparison, measure, limit, &after));
    let grown = grown.unwrap_or_default();
    for line in &grown {
        say(line);
    }
    Ok(match grown.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(GROWN),
    })
}

impl Args {
    fn recordings(&self) -> Result<[PathBuf; 2], NoneHere> {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => Ok([before, after].map(|file| kept::found(file))),
            (Some(before), None) => Ok([kept::found(before), kept::newest_but(&[before])?]),
            (None, _) => kept::two_newest(),
        }
    }

    fn measure(&self) -> Measure {
        match self.per {
            Some(operations) => Measure::Per(operations),
            None if self.time => Measure::Amount,
            None => Measure::Share,
        }
    }
}

fn picture(
    args: &Args,
    path: &std::path::Path,
    profiles: [&Profile; 2],
    measure: Measure,
) -> Result<(), Error> {
    let [before, after] = profiles.map(|profile| profile.whole() as f64);
    let (factor, words) = match measure {
        Measure::Share => (after / before, "by share"),
        Measure::Amount => (1.0, "by amount"),
        Measure::Per([first, second]) => (second / first, "by operation"),
    };
    let subject = profiles[1].subject();
    let subtitle = format!("{subject} {words}: red has grown, blue has shrunk");
    let options = Options {
        names: args.selection.names(),
        // Processes of two runs have other numbers.
        roots: Roots::None,
        output: None,
    };
    atomic::write(path, |out| {
        differential::write(profiles, factor, subtitle, &options, out)
    })?;
    Ok(())
}

fn text(
    args: &Args,
    profiles: [&Profile; 2],
    measure: Measure,
    comparison: &Comparison,
    look: Look,
) -> String {
    let mut out = String::new();
    let after = profiles[1];
    let whole = &comparison.whole;
    let of_all = match measure {
        Measure::Share => Measure::Amount,
        other => other,
    };
    let per = if matches!(measure, Measure::Per(_)) {
        " for an operation"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "{} before, {} after{per}: {} of {} ({:+.1} %{})",
        words(whole.values[0], of_all, after),
        words(whole.values[1], of_all, after),
        change(whole, of_all, after),
        after.subject(),
        100.0 * whole.change() / whole.values[0],
        if whole.noise { ", noise" } else { "" },
    );
    let which = match args.sort {
        Sort::Total => "with what it called",
        _ => "in itself",
    };
    if args.by == By::Function
        && let Some(own) = own(profiles, measure, args.selection.names(), comparison)
    {
        let fitted = look
            .width
            .map(|width| without_end(&own, width).into_owned());
        let _ = writeln!(out, "{}", fitted.unwrap_or(own));
    }
    if !comparison.renamed.is_empty() {
        let pairs = comparison.renamed.iter();
        let pairs = pairs.map(|(old, new)| format!("{new} with {old}"));
        let pairs: Vec<_> = pairs.collect();
        let _ = writeln!(
            out,
            "compared as one program or library: {}",
            pairs.join(", ")
        );
    }
    let points = match measure {
        Measure::Share => ", in percentage points (pp)",
        _ => "",
    };
    let noise = match comparison.changes.iter().all(|change| change.noise) {
        true => "no change is more than noise (~)",
        false => "~ is noise: sampling alone explains it",
    };
    let _ = writeln!(out, "{which}{points}; {noise}\n");
    let (name, origin) = columns::headings(args.by);
    let changed = comparison.changes.iter();
    let mut all = changed.filter(|change| change.values != [0.0, 0.0]);
    let shown: Vec<_> = all.by_ref().take(args.limit).collect();
    let widths = shown.iter().map(|row| measure_text_width(&row.origin));
    let wide = widths.max().unwrap_or(0).clamp(origin.len(), WIDEST_ORIGIN);
    let head = format!(
        "{:>9}  {:>9}  {:>10}    {}  {name}",
        "BEFORE",
        "AFTER",
        "CHANGE",
        padded(origin, wide)
    );
    let _ = writeln!(out, "{}", look.heading(&head));
    for row in shown {
        let values = row.values.map(|value| words(value, measure, after));
        let difference = format!("{:>10}", change(row, measure, after));
        let (difference, mark) = match row.noise {
            true => (look.aside(&difference), "~"),
            false => (look.change(&difference, row.change() > 0.0), " "),
        };
        let origin = without_beginning(&row.origin, wide);
        let origin = look.aside(&padded(&origin, wide));
        let rest = look
            .width
            .map_or(usize::MAX, |width| width.saturating_sub(38 + wide).max(20));
        let name = without_middle(&row.name, rest);
        let [before, after] = values;
        let _ = writeln!(
            out,
            "{before:>9}  {after:>9}  {difference} {mark}  {origin}  {name}"
        );
    }
    let more = all.count();
    if more > 0 {
        let _ = writeln!(out, "… and {more} more (-n shows them)");
    }
    out
}

/// Numbers of operations: of both runs, or of each.
fn operations(text: &str) -> Result<[f64; 2], String> {
    let (first, second) = text.split_once(',').unwrap_or((text, text));
    let number = |text: &str| {
        let number = text.trim().parse::<f64>().ok();
        number.filter(|number| number.is_finite() && *number > 0.0)
    };
    match (number(first), number(second)) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(format!(
            "{text:?} is no number of operations: give one, or two (1000,1500), above 0"
        )),
    }
}

/// A part in per cent.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
    let number = number.ok().filter(|number| (0.0..1e6).contains(number));
    number.ok_or_else(|| format!("{text:?} is no part: give per cent, such as 5%"))
}
