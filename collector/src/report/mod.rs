//! `rsunwind report`: who used the CPU, as a table on the terminal.
//!
//! Start at [`run`]. Not here: what is counted (`table`, `call_tree`), how it is laid out
//! (`columns`, `tree`, `machine`), and the account of how well a recording went
//! ([`crate::summary`]).

mod annotate;
mod assembly;
mod call_tree;
pub(crate) mod columns;
mod heading;
pub(crate) mod look;
mod machine;
mod own;
pub(crate) mod pager;
mod rows;
mod selection;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod tree;

pub use rows::Rows;
pub use selection::Selection;

use crate::kept::NoneHere;
use crate::profile::{FilterError, Names, NoEvent, NoLabel, NoLanguage, PREEMPTED, Profile};
use crate::progress;
use crate::progress_bar::Working;
use crate::recording::OpenError;
use crate::summary;
use crate::visible::{say, visible_lines};
use call_tree::{Shape, Tree};
use clap::{Args as ClapArgs, ValueEnum};
use engine::wire::source::{OFF_CPU, WALL};
use look::Look;
pub use machine::Format;
use regex::Regex;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

/// A heading in the help.
const CALLS: &str = "Calls and lines";

/// Arguments of `rsunwind report`.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(after_help = "\
SELF is CPU time (or what --event names) spent in the function itself, TOTAL includes what it called; a function that calls itself is counted once.
On a terminal the table goes through $PAGER (or less); NO_COLOR=1 takes the colours away.

Examples:
  rsunwind report                                  what is slow, of the newest recording here
  rsunwind report prog.rsu --callers memcpy        who calls it
  rsunwind report prog.rsu --annotate '^parse$'    which lines of it
  rsunwind report prog.rsu --by module --from 2 --to 5
  rsunwind report prog.rsu --event off-cpu         where it waits (record --off-cpu)
  rsunwind report prog.rsu --by label=route        which requests, if the program says so
  rsunwind report prog.rsu --format csv -n 20
  rsunwind report 'clickhouse://host/db?service=shop&from=-15m'")]
pub struct Args {
    /// Recordings (.rsu), segments (.seg), or session directories; several are read as one. Or an
    /// address of ClickHouse's [default: the newest recording here]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// What a row stands for [default: function; own for off-CPU and wall-clock time];
    /// label=KEY for labels of that key
    #[arg(long, value_parser = rows::Parser)]
    pub by: Option<Rows>,

    /// What comes first
    #[arg(short, long, value_enum, default_value_t)]
    pub sort: Sort,

    /// At most this many rows
    #[arg(short = 'n', long, value_name = "ROWS")]
    pub limit: Option<usize>,

    /// Who calls whom, from where threads begin
    #[arg(long, group = "shape", help_heading = CALLS)]
    pub tree: bool,

    /// Who calls the functions that this regular expression matches
    #[arg(long, value_name = "REGEX", group = "shape", help_heading = CALLS)]
    pub callers: Option<Regex>,

    /// What the functions that this regular expression matches call
    #[arg(long, value_name = "REGEX", group = "shape", help_heading = CALLS)]
    pub callees: Option<Regex>,

    /// The source of the functions that this regular expression matches, and by objdump their
    /// machine code, with what was spent in each line
    #[arg(long, value_name = "REGEX", group = "shape", help_heading = CALLS)]
    pub annotate: Option<Regex>,

    /// How it is written
    #[arg(short, long, value_enum, default_value_t, conflicts_with_all = ["annotate", "summary"])]
    pub format: Format,

    /// How the recording went, instead of what is in it
    #[arg(long)]
    pub summary: bool,

    /// Print the table without a pager
    #[arg(long)]
    pub no_pager: bool,

    /// Which samples, and where names are looked for
    #[command(flatten)]
    pub selection: Selection,
}

impl Args {
    /// What a row stands for: what was asked for, or what says the most of the event.
    fn by(&self, profile: &Profile) -> By {
        let usual = match profile.shown_event {
            OFF_CPU | WALL => By::Own,
            _ => By::Function,
        };
        self.by.as_ref().map_or(usual, |rows| rows.by)
    }
}

/// What a row of the table stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A function
    #[default]
    Function,
    /// A function of the program's own, the innermost of a stack, and what that called
    Own,
    /// A line of a source file
    Line,
    /// A binary
    Module,
    /// A thread
    Thread,
    /// A process
    Process,
    /// A container or another cgroup, of processes that were seen from outside
    #[value(alias = "container")]
    Cgroup,
    /// The labels of the regions that the program says it is in
    Label,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Most time in itself first
    #[default]
    #[value(name = "self")]
    Own,
    /// Most time with what it called first
    Total,
    /// By name
    Name,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A recording cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// None was named, and there is none.
    #[error(transparent)]
    NoneHere(#[from] NoneHere),
    /// Nothing can be read from ClickHouse.
    #[cfg(feature = "agent")]
    #[error(transparent)]
    ClickHouse(#[from] crate::clickhouse::Error),
    /// Nothing is left of it.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// No sample has such a label.
    #[error(transparent)]
    Label(#[from] NoLabel),
    /// No such event was recorded.
    #[error(transparent)]
    Event(#[from] NoEvent),
    /// No frames of such a language were recorded.
    #[error(transparent)]
    Language(#[from] NoLanguage),
    /// No function is called so.
    #[error("no function's name matches {0:?}: rsunwind report without it lists them")]
    Function(String),
    /// Standard output cannot be written.
    #[error("the report cannot be written: {0}")]
    Write(#[from] io::Error),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NoneHere(_)
            | Self::Filter(_)
            | Self::Event(_)
            | Self::Label(_)
            | Self::Language(_)
            | Self::Function(_) => 2,
            _ => 1,
        }
    }
}

/// Prints what `args` ask for.
///
/// # Errors
/// Any [`Error`]. A reader that goes away is none.
pub fn run(args: &Args) -> Result<(), Error> {
    let mut selection = args.selection.clone();
    if args.summary {
        // The account is of CPU time, and has a line for each other event.
        selection.event = Some("cpu".to_owned());
    }
    let working = Working::begin();
    let rows = args.by.as_ref().map(|rows| rows.by);
    let by_thread = args.summary || rows == Some(By::Thread);
    let mut profile = selection.open(&args.files, by_thread)?;
    if let Some(key) = args.by.as_ref().and_then(|rows| rows.label.as_deref()) {
        profile.keep_label(key)?;
    }
    progress::begin("counting", 0);
    let text = if args.summary {
        let text = summary::fitted(&summary::text(&profile), Look::of_stdout().width);
        visible_lines(&text).into_owned()
    } else {
        match args.format {
            Format::Text => text(&profile, args, Look::of_stdout())?,
            _ => for_machines(&profile, args)?,
        }
    };
    drop(working);
    complain(&profile);
    pager::show(&text, args.no_pager || args.format != Format::Text)?;
    profile.leave();
    Ok(())
}

/// Says on standard error what could not be read or named.
pub(crate) fn complain(profile: &Profile) {
    for line in summary::complaints(profile) {
        say(format_args!("{line}"));
    }
}

/// The tree that was asked for, if one was and there is anything in it.
fn shape<'a>(profile: &Profile, args: &'a Args) -> Result<Option<Shape<'a>>, Error> {
    let around = args.callers.as_ref().or(args.callees.as_ref());
    if let Some(wanted) = around.or(args.annotate.as_ref()) {
        find(profile, wanted)?;
    }
    let callers = args.callers.as_ref().map(Shape::Callers);
    let callees = args.callees.as_ref().map(Shape::Callees);
    Ok(callers
        .or(callees)
        .or_else(|| args.tree.then_some(Shape::Whole)))
}

fn find(profile: &Profile, wanted: &Regex) -> Result<(), Error> {
    match profile.functions_like(wanted).contains(&true) {
        true => Ok(()),
        false => Err(Error::Function(wanted.to_string())),
    }
}

fn text(profile: &Profile, args: &Args, look: Look) -> Result<String, Error> {
    let mut out = heading::text(profile, look);
    let names = args.selection.names();
    let look = look.of_names(names);
    if profile.weighed().next().is_none() {
        let why = match (profile.unfiltered, profile.shown_event) {
            (Some(some), _) if some > 0 => {
                "no sample is left: the filters leave all of them out".to_owned()
            }
            (_, 0) => summary::why_empty(profile),
            _ => format!("no sample of {} was taken", profile.subject()),
        };
        let _ = writeln!(out, "\n{why}");
        return Ok(out);
    }
    let shape = shape(profile, args)?;
    if let Some(wanted) = &args.annotate {
        let spent = annotate::Spent::of(profile, wanted);
        annotate::source(&mut out, profile, &spent, names, look);
        let places = args.selection.places();
        assembly::print(&mut out, profile, &spent, &places, names, look);
        return Ok(out);
    }
    if let Some(shape) = shape {
        out.push('\n');
        tree::print(&mut out, profile, shape, args.limit, names, look);
        return Ok(out);
    }
    let by = args.by(profile);
    let (own, (rows, left_out)) = std::thread::scope(|scope| {
        let own = scope.spawn(|| match by {
            By::Function => heading::own(profile, names),
            _ => None,
        });
        let rows = rows(profile, args, names);
        (own.join(), rows)
    });
    let own = own.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if let Some(own) = own {
        let fitted = look.width.map(|width| look::without_end(&own, width));
        let _ = writeln!(out, "{}", fitted.as_deref().unwrap_or(&own));
    }
    out.push('\n');
    let amount = |amount| profile.amount(amount);
    columns::print(&mut out, &rows, by, profile.whole(), look, amount);
    if left_out > 0 {
        let _ = writeln!(out, "… and {left_out} more rows");
    }
    Ok(out)
}

fn for_machines(profile: &Profile, args: &Args) -> Result<String, Error> {
    if let Some(shape) = shape(profile, args)? {
        let tree = Tree::of(profile, shape, Names::Whole);
        return Ok(machine::calls(profile, &tree, args.limit, args.format));
    }
    let (rows, _) = rows(profile, args, Names::Whole);
    let by = args.by(profile);
    Ok(machine::table(profile, &rows, by, args.format))
}

/// The rows in order, and how many more there are.
fn rows(profile: &Profile, args: &Args, names: Names) -> (Vec<table::Row>, usize) {
    let by = args.by(profile);
    let mut rows = table::rows(profile, by, names);
    table::sort(&mut rows, args.sort);
    if by == By::Own {
        rows.sort_by_key(|row| row.name == PREEMPTED); // which nobody chose
    }
    let all = rows.len();
    rows.truncate(args.limit.unwrap_or(usize::MAX));
    let left_out = all - rows.len();
    (rows, left_out)
}
