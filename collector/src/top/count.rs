//! The lines of the table, counted from a profile: of its newest time, and of all of it.

use super::state::{Column, Focus, Line};
use crate::profile::{Gil, Names, Profile, Sample};
use crate::recording::ThreadId;
use crate::report::By;
use crate::report::table::{Row, row_of_thread, weighed};
use engine::wire::source::OFF_CPU;
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
    pub(super) has_wait: bool,
    pub(super) has_gil: bool,
}

/// Counts what there is to be shown at that time (`CLOCK_MONOTONIC`, ns).
pub(super) fn lines(
    profile: &mut Profile,
    now_ns: u64,
    view: By,
    focus: Option<&Focus>,
) -> Counted {
    let from_ns = now_ns.saturating_sub(RECENT_NS);
    let window_ns = now_ns.saturating_sub(profile.start_ns());
    let window_ns = window_ns.clamp(1, RECENT_NS);
    let percent = |ns: u64| 100.0 * ns as f64 / window_ns as f64;
    let mut counted = Counted {
        has_wait: profile.aside.iter().any(|sample| sample.event == OFF_CPU),
        has_gil: profile
            .samples
            .iter()
            .any(|sample| sample.gil != Gil::Nothing),
        ..Counted::default()
    };
    let recent = |profile: &Profile, sample: &Sample| match sample.event {
        // From its beginning on, which may have been before.
        OFF_CPU => {
            let end_ns = sample.time_ns.saturating_add(sample.weight).min(now_ns);
            end_ns.saturating_sub(sample.time_ns.max(from_ns))
        }
        _ if sample.time_ns >= from_ns => profile.time_ns(sample),
        _ => 0,
    };
    let times = profile.weighed().map(|sample| recent(profile, sample));
    counted.load = percent(times.fold(0, u64::saturating_add));

    let mut table = Table::default();
    let shown = Shown::of(profile, view, focus);
    for row in shown.rows(profile, |sample| profile.time_ns(sample)) {
        table.add(&row);
    }
    let new = shown.rows(profile, |sample| recent(profile, sample));
    for row in &new {
        table.put(row, Column::Own, percent(row.own_ns));
        table.put(row, Column::Total, percent(row.total_ns));
    }
    if counted.has_gil {
        let held = shown.rows(profile, |sample| match sample.gil {
            Gil::Held => recent(profile, sample),
            _ => 0,
        });
        for row in &held {
            table.put(row, Column::Gil, percent(row.total_ns));
        }
    }
    if counted.has_wait {
        profile.show(OFF_CPU);
        for row in shown.rows(profile, |sample| recent(profile, sample)) {
            table.put(&row, Column::Wait, percent(row.total_ns));
        }
        profile.show_usual();
    }
    counted.lines = table.lines;
    counted
}

/// Sorts lines, the most first; equal ones by what they are since the beginning, and by name, so
/// that the order never varies.
pub(super) fn sort(lines: &mut [Line], by: Column) {
    let amounts = |line: &Line| {
        let [own, total, ..] = line.recent;
        let (own_ns, total_ns) = (line.row.own_ns, line.row.total_ns);
        match by {
            Column::Total => ([total, own], [total_ns, own_ns]),
            _ => ([own, total], [own_ns, total_ns]),
        }
    };
    let descending = |a: [f64; 2], b: [f64; 2]| b[0].total_cmp(&a[0]).then(b[1].total_cmp(&a[1]));
    lines.sort_by(|a, b| {
        let special = match by {
            Column::Wait | Column::Gil => b.recent[by as usize].total_cmp(&a.recent[by as usize]),
            _ => Ordering::Equal,
        };
        let amount = || {
            let ((new_a, all_a), (new_b, all_b)) = (amounts(a), amounts(b));
            descending(new_a, new_b).then_with(|| all_b.cmp(&all_a))
        };
        let amount = match by {
            Column::Name => Ordering::Equal,
            _ => special.then_with(amount),
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
    /// The line of all rows that are called the same: a program before and behind an exec, or
    /// libraries of one name in several places.
    fn line(&mut self, row: &Row) -> &mut Line {
        let next = self.lines.len();
        let at = *self.places.entry(name(row)).or_insert(next);
        if at == next {
            self.lines.push(Line::of(Row {
                own_ns: 0,
                total_ns: 0,
                ..row.clone()
            }));
        }
        &mut self.lines[at]
    }

    fn add(&mut self, row: &Row) {
        let there = &mut self.line(row).row;
        there.own_ns = there.own_ns.saturating_add(row.own_ns);
        there.total_ns = there.total_ns.saturating_add(row.total_ns);
    }

    /// Notes a recent amount.
    fn put(&mut self, row: &Row, column: Column, amount: f64) {
        self.line(row).recent[column as usize] += amount;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;

    /// Recent amounts of a function: own, total, waiting, with the GIL.
    fn of(counted: &Counted, name: &str) -> [f64; 4] {
        let mut lines = counted.lines.iter();
        lines.find(|line| line.row.name == name).unwrap().recent
    }

    /// The same process with the same name and command, as where one makes itself anew.
    #[test]
    fn rows_that_are_called_the_same_are_one_line() {
        let mut profile = example();
        let now_ns = profile.start_ns() + 20_000_000_000;
        for sample in &mut profile.samples {
            sample.time_ns = now_ns - 1_000_000_000;
        }
        let one = lines(&mut profile, now_ns, By::Process, None);
        let [line] = &one.lines[..] else {
            panic!("{:?}", one.lines);
        };
        let (recent, own_ns) = (line.recent, line.row.own_ns);
        let first = &profile.recording.processes[0];
        let again = crate::recording::Process {
            pid: first.pid,
            executable: first.executable.clone(),
            command: first.command.clone(),
            period_ns: first.period_ns,
            ..Default::default()
        };
        profile.recording.processes.push(again);
        let last = profile.recording.processes.len() - 1;
        let worker = profile.samples[3].thread;
        profile.recording.threads[worker.index()].process =
            crate::recording::ProcessId::next_of(last);
        let both = lines(&mut profile, now_ns, By::Process, None);
        let [line] = &both.lines[..] else {
            panic!("{:?}", both.lines);
        };
        assert_eq!((line.recent, line.row.own_ns), (recent, own_ns));
        assert!(recent[0] > 0.0 && own_ns == 7_000_000);
    }

    #[test]
    fn waits_count_from_when_they_began_and_the_gil_by_who_has_it() {
        let mut profile = example();
        let now_ns = profile.start_ns() + 20_000_000_000;
        for sample in &mut profile.samples {
            sample.time_ns = now_ns - 1_000_000_000;
        }
        let plain = lines(&mut profile, now_ns, By::Function, None);
        assert!(!plain.has_wait && !plain.has_gil);
        assert_eq!(of(&plain, "_start")[2..], [0.0, 0.0]);

        let [first, second, ..] = profile.samples[..] else {
            panic!("{:?}", profile.samples);
        };
        profile.samples[0].gil = Gil::Held;
        profile.samples[1].gil = Gil::Awaited;
        let wait = |seconds_ago: u64, seconds: u64| Sample {
            event: OFF_CPU,
            time_ns: now_ns - seconds_ago * 1_000_000_000,
            weight: seconds * 1_000_000_000,
            ..second
        };
        // Two seconds of the last five, two more from before; one of them; three that were over.
        profile.aside = vec![wait(7, 4), wait(1, 1), wait(9, 3)];
        let counted = lines(&mut profile, now_ns, By::Function, None);
        let held_ns = profile.time_ns(&first) as f64;
        let [own, total, waits, held] = of(&counted, "_start");
        assert!(counted.has_wait && counted.has_gil);
        assert_eq!([own, total], of(&plain, "_start")[..2]);
        assert_eq!(waits, 60.0);
        assert_eq!(held, 100.0 * held_ns / 5e9);
        assert_eq!(counted.load, plain.load);
    }
}
