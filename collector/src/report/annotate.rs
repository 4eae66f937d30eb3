//! The source of functions, each line with what was spent in it.
//!
//! Not here: their machine code (`assembly`).

use super::look::{Look, without_end};
use crate::intern::{HashMap, HashSet};
use crate::numbers::share;
use crate::output::started_at;
use crate::profile::{CallId, Frame, FunctionId, Names, Profile};
use crate::regular_file;
use crate::visible::visible;
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Lines shown before and behind those that have something.
const AROUND: u32 = 4;
/// Of a source no more is read, bytes.
const LONGEST_SOURCE: u64 = 64 << 20;

/// Of a line or an instruction: in itself, and with what it called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) own: u64,
    pub(super) total: u64,
}

impl Cost {
    pub(super) fn add(&mut self, own: u64, total: u64) {
        self.own = self.own.saturating_add(own);
        self.total = self.total.saturating_add(total);
    }

    /// Its two columns, empty where it has nothing.
    pub(super) fn columns(self, profile: &Profile, whole: u64, look: Look) -> String {
        let column = |amount: u64| match amount {
            0 => " ".repeat(18),
            _ => {
                let text = format!("{:>9}  {:>7}", profile.amount(amount), share(amount, whole));
                look.part(&text, amount, whole)
            }
        };
        format!("{}  {}", column(self.own), column(self.total))
    }
}

/// What was spent where in the functions that were asked for: their frames that have something.
pub(super) struct Spent<'a> {
    pub(super) frames: Vec<(&'a Frame, CallId, Cost)>,
}

impl<'a> Spent<'a> {
    /// A stack counts where it is in the innermost of these functions.
    pub(super) fn of(profile: &'a Profile, wanted: &Regex) -> Self {
        let is_one = profile.functions_like(wanted);
        let mut own = vec![0_u64; profile.stacks.len()];
        for sample in profile.weighed() {
            let sum = &mut own[sample.stack.index()];
            *sum = sum.saturating_add(profile.time_ns(sample));
        }
        let mut innermost: Vec<Option<CallId>> = Vec::with_capacity(own.len());
        let mut costs: HashMap<CallId, Cost> = HashMap::default();
        for (index, call) in profile.stacks.iter().enumerate() {
            let frame = &profile.frames[call.frame.index()];
            let here = is_one[frame.function.index()].then(|| CallId::next_of(index));
            let at = here.or_else(|| innermost[call.parent?.index()]);
            if let Some(at) = at.filter(|_| own[index] > 0) {
                let itself = if here.is_some() { own[index] } else { 0 };
                costs.entry(at).or_default().add(itself, own[index]);
            }
            innermost.push(at);
        }
        let frame = |call: CallId| &profile.frames[profile.stacks[call.index()].frame.index()];
        let frames = costs.into_iter();
        Self {
            frames: frames
                .map(|(call, cost)| (frame(call), call, cost))
                .collect(),
        }
    }
}

/// Prints the source of these functions.
pub(super) fn source(
    out: &mut String,
    profile: &Profile,
    spent: &Spent<'_>,
    names: Names,
    look: Look,
) {
    let mut files: BTreeMap<&str, File> = BTreeMap::new();
    for (frame, _, cost) in &spent.frames {
        let name = frame.file.as_deref().unwrap_or_default();
        let file = files.entry(name).or_default();
        file.total.add(cost.own, cost.total);
        file.functions.insert(frame.function);
        if frame.line > 0 {
            let line = file.lines.entry(frame.line).or_default();
            line.add(cost.own, cost.total);
        }
    }
    let mut files: Vec<(&str, File)> = files.into_iter().collect();
    files.sort_by_key(|(_, file)| std::cmp::Reverse(file.total.total));
    for (name, file) in &files {
        let called = file.functions.iter();
        let called = called.map(|id| profile.functions[id.index()].called(names));
        let mut called: Vec<&str> = called.collect();
        called.sort_unstable();
        let title = match name.is_empty() {
            true => format!("{}: no line numbers (compile with -g)", called.join(", ")),
            false => format!("{}: {name}", called.join(", ")),
        };
        let _ = writeln!(out, "\n{}", look.heading(&title));
        file.print(out, profile, name, look);
    }
}

/// The text of a source, as far as it is one.
fn read(name: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    let file = regular_file::open(name)?;
    file.take(LONGEST_SOURCE).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// What was spent in a file.
#[derive(Default)]
struct File {
    functions: HashSet<FunctionId>,
    lines: BTreeMap<u32, Cost>,
    total: Cost,
}

impl File {
    fn print(&self, out: &mut String, profile: &Profile, name: &str, look: Look) {
        let whole = profile.whole();
        let text = match name {
            "" => String::new(),
            name => match read(Path::new(name)) {
                Ok(text) => text,
                Err(error) => {
                    let _ = writeln!(out, "the source cannot be read here: {error}");
                    String::new()
                }
            },
        };
        if !text.is_empty() && is_newer(profile, name) {
            let _ = writeln!(
                out,
                "the source was changed after the recording: lines may have moved"
            );
        }
        let head = format!("{:>18}  {:>18}  {:>6}", "SELF", "TOTAL", "LINE");
        let _ = writeln!(out, "{}", look.heading(&head));
        let source: Vec<&str> = text.lines().collect();
        let mut shown = 0;
        for line in self.shown_lines(source.len()) {
            if shown > 0 && line > shown + 1 {
                let _ = writeln!(out, "{:>46}", "…");
            }
            shown = line;
            let cost = self.lines.get(&line).copied().unwrap_or_default();
            let text = source
                .get(line as usize - 1)
                .map_or("", |text| text.trim_end());
            let text = visible(text).replace("\\t", "    ");
            let text = match look.width {
                Some(width) => without_end(&text, width.saturating_sub(48)).into_owned(),
                None => text,
            };
            let columns = cost.columns(profile, whole, look);
            let line = format!("{columns}  {line:>6}  {text}");
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }

    /// Those that have something, and some around them that the source has.
    fn shown_lines(&self, source: usize) -> Vec<u32> {
        let mut lines: Vec<u32> = Vec::new();
        for line in self.lines.keys() {
            let last = u32::try_from(source).unwrap_or(u32::MAX);
            let behind = line.saturating_add(AROUND).min(last.max(*line));
            let before = match source {
                0 => *line,
                _ => line.saturating_sub(AROUND).max(1),
            };
            lines.extend(before..=behind);
        }
        lines.sort_unstable();
        lines.dedup();
        lines
    }
}

fn is_newer(profile: &Profile, file: &str) -> bool {
    let recorded = Duration::from_nanos(started_at(profile));
    let changed = fs::metadata(file).and_then(|file| file.modified());
    !recorded.is_zero() && changed.is_ok_and(|changed| changed > SystemTime::UNIX_EPOCH + recorded)
}
