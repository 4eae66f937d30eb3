//! The lines of the table, counted from a profile: of its newest time, and of all of it.

use super::state::{Column, Focus, Line};
use crate::profile::{Names, Profile, Sample};
use crate::recording::ThreadId;
use crate::report::By;
use crate::report::table::{Row, row_of_thread, weighed};
use std::cmp::Ordering;
use std::collections::HashMap;

/// Percentages are of this time, ns: the newest.
const RECENT_NS: u64 = 5_000_000_000;

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// In no order.
    pub(super) lines: Vec<Line>,
    /// CPU time of the recent time, per cent of one processor.
    pub(super) load: f64,
}

/// Counts what there is to be shown at that time (`CLOCK_MONOTONIC`, ns).
pub(super) fn lines(profile: &Profile, now_ns: u64, view: By, focus: Option<&Focus>) -> Counted {
    let from_ns = now_ns.saturating_sub(RECENT_NS);
    let window_ns = now_ns.saturating_sub(profile.start_ns());
    let window_ns = window_ns.clamp(1, RECENT_NS);
    let percent = |ns: u64| 100.0 * ns as f64 / window_ns as f64;
    let mut counted = Counted::default();
    let recent = |sample: &Sample| match sample.time_ns >= from_ns {
        true => profile.time_ns(sample),
        false => 0,
    };
    let times = profile.weighed().map(recent);
    counted.load = percent(times.fold(0, u64::saturating_add));

    let mut table = Table::default();
    let shown = Shown::of(profile, view, focus);
    let all = shown.rows(profile, |sample| profile.time_ns(sample));
    table.lines = all.into_iter().map(Line::of).collect();
    table.index();
    let new = shown.rows(profile, recent);
    for row in &new {
        table.put(row, Column::Own, percent(row.own_ns));
        table.put(row, Column::Total, percent(row.total_ns));
    }
    counted.lines = table.lines;
    counted
}

/// Sorts lines, the most first; equal ones by what they are since the beginning, and by name, so
/// that the order never varies.
pub(super) fn sort(lines: &mut [Line], by: Column) {
    let amounts = |line: &Line| {
        let [own, total] = line.recent;
        let (own_ns, total_ns) = (line.row.own_ns, line.row.total_ns);
        match by {
            Column::Total => ([total, own], [total_ns, own_ns]),
            _ => ([own, total], [own_ns, total_ns]),
        }
    };
    let descending = |a: [f64; 2], b: [f64; 2]| b[0].total_cmp(&a[0]).then(b[1].total_cmp(&a[1]));
    lines.sort_by(|a, b| {
        let amount = match by {
            Column::Name => Ordering::Equal,
            _ => {
                let ((new_a, all_a), (new_b, all_b)) = (amounts(a), amounts(b));
                descending(new_a, new_b).then_with(|| all_b.cmp(&all_a))
            }
        };
        amount.then_with(|| (&a.row.name, &a.row.origin).cmp(&(&b.row.name, &b.row.origin)))
    });
}

impl Line {
    fn of(row: Row) -> Self {
        Self {
            row,
            ..Self::default()
        }
    }
}

/// The lines, found by what they are called.
#[derive(Default)]
struct Table {
    lines: Vec<Line>,
    places: HashMap<(String, String), usize>,
}

impl Table {
    fn index(&mut self) {
        let lines = self.lines.iter().enumerate();
        self.places = lines.map(|(at, line)| (name(&line.row), at)).collect();
    }

    /// Notes an amount; of what has no line yet it makes one.
    fn put(&mut self, row: &Row, column: Column, amount: f64) {
        let next = self.lines.len();
        let at = *self.places.entry(name(row)).or_insert(next);
        if at == next {
            self.lines.push(Line::of(Row {
                own_ns: 0,
                total_ns: 0,
                ..row.clone()
            }));
        }
        self.lines[at].recent[column as usize] = amount;
    }
}

fn name(row: &Row) -> (String, String) {
    (row.name.clone(), row.origin.clone())
}

/// What rows are made of.
enum Shown<'f> {
    By(By),
    Callers(&'f str),
    Lines(&'f str),
    /// Functions, of these threads alone.
    Within(Vec<bool>),
}

impl<'f> Shown<'f> {
    fn of(profile: &Profile, view: By, focus: Option<&'f Focus>) -> Self {
        match focus {
            None => Self::By(view),
            Some(Focus::Callers(function)) => Self::Callers(function),
            Some(Focus::Lines(function)) => Self::Lines(function),
            Some(Focus::Within(by, name, origin)) => {
                let threads = (0..profile.recording.threads.len()).map(ThreadId::next_of);
                let is_within = |thread| {
                    let (its_name, its_origin) = row_of_thread(profile, *by, thread);
                    its_name == *name && its_origin == *origin
                };
                Self::Within(threads.map(is_within).collect())
            }
        }
    }

    fn rows(&self, profile: &Profile, weigh: impl Fn(&Sample) -> u64) -> Vec<Row> {
        let by = |by, weigh: &dyn Fn(&Sample) -> u64| weighed(profile, by, Names::Short, weigh);
        match self {
            Self::By(view) => by(*view, &weigh),
            Self::Callers(function) => callers(profile, function, weigh),
            Self::Lines(function) => {
                let mut rows = by(By::Line, &weigh);
                rows.retain(|row| row.name == *function);
                for row in &mut rows {
                    let place = row.origin.rsplit('/').next();
                    row.name = place.unwrap_or_default().to_owned();
                }
                rows
            }
            Self::Within(threads) => by(By::Function, &|sample| match threads
                .get(sample.thread.index())
            {
                Some(true) => weigh(sample),
                _ => 0,
            }),
        }
    }
}

/// Who calls a function: time in it, by the function next to it on the stack.
fn callers(profile: &Profile, function: &str, weigh: impl Fn(&Sample) -> u64) -> Vec<Row> {
    let mut found: HashMap<(String, String), u64> = HashMap::new();
    for sample in profile.weighed() {
        let functions = profile
            .walk(sample.stack)
            .map(|frame| profile.function(frame));
        let mut behind = functions.skip_while(|known| known.called(Names::Short) != function);
        if behind.next().is_none() {
            continue;
        }
        let caller = behind.find(|caller| caller.called(Names::Short) != function);
        let key = match caller {
            Some(caller) => (
                caller.called(Names::Short).to_owned(),
                profile.image_name(caller).to_owned(),
            ),
            None => ("[nobody: the outermost frame]".to_owned(), String::new()),
        };
        let sum = found.entry(key).or_default();
        *sum = sum.saturating_add(weigh(sample));
    }
    let row = |((name, origin), total_ns)| Row {
        own_ns: total_ns,
        total_ns,
        name,
        origin,
    };
    found.into_iter().map(row).collect()
}
