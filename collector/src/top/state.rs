//! What is shown. Nothing here knows a terminal.
//!
//! Not here: what keys do to it ([`super::keys`]), and how lines are counted ([`super::count`]).

use super::count;
use crate::numbers::duration;
use crate::profile::Profile;
use crate::report::By;
use crate::report::table::Row;

/// The views, in the order of the Tab key.
pub(super) const VIEWS: [(By, &str); 5] = [
    (By::Function, "functions"),
    (By::Thread, "threads"),
    (By::Process, "processes"),
    (By::Module, "modules"),
    (By::Cgroup, "cgroups"),
];

/// What a column counts, or names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Column {
    /// CPU time in itself.
    #[default]
    Own,
    /// With what it called.
    Total,
    /// Time off the CPU.
    Wait,
    /// CPU time with Python's lock.
    Gil,
    /// Its name.
    Name,
}

/// All of them, as they stand from left to right, with their headings.
pub(super) const COLUMNS: [(Column, &str); 5] = [
    (Column::Own, "%SELF"),
    (Column::Total, "%TOTAL"),
    (Column::Wait, "%WAIT"),
    (Column::Gil, "%GIL"),
    (Column::Name, "NAME"),
];

/// What alone is shown, of all that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    /// Who calls a function.
    Callers(String),
    /// The lines of a function.
    Lines(String),
    /// What a thread, a process or a cgroup does, by name and origin of its row.
    Within(By, String, String),
}

/// A row of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    /// Of the recent time, per cent of one processor, by [`Column`].
    pub(super) recent: [f64; 4],
    /// Since the beginning.
    pub(super) row: Row,
}

/// The picture.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) profile: Option<Profile>,
    /// When it was read (`CLOCK_MONOTONIC`, ns).
    pub(super) now_ns: u64,
    pub(super) view: usize,
    pub(super) sort: Column,
    /// Whether the least comes first.
    pub(super) is_inverted: bool,
    pub(super) filter: String,
    /// Whether keys go to the filter.
    pub(super) typing: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) focus: Option<Focus>,
    pub(super) selected: usize,
    pub(super) lines: Vec<Line>,
    /// CPU time of the recent time, per cent of one processor.
    pub(super) load: f64,
    /// Which of the columns have something to show.
    pub(super) has_wait: bool,
    pub(super) has_gil: bool,
    /// What became of the recording.
    pub(super) ended: Option<String>,
    /// Whether the recording is about as long as it may be.
    pub(super) is_full: bool,
}

impl State {
    /// Takes in what was read just now, unless the picture stands still.
    pub(super) fn take(&mut self, profile: Profile, now_ns: u64) {
        if !self.paused {
            (self.profile, self.now_ns) = (Some(profile), now_ns);
            self.count();
        }
    }

    /// Makes the lines anew.
    pub(super) fn count(&mut self) {
        let Some(profile) = &mut self.profile else {
            return;
        };
        let counted = count::lines(
            profile,
            self.now_ns,
            VIEWS[self.view].0,
            self.focus.as_ref(),
        );
        (self.lines, self.load) = (counted.lines, counted.load);
        (self.has_wait, self.has_gil) = (counted.has_wait, counted.has_gil);
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        self.lines
            .retain(|line| has(&line.row.name) || has(&line.row.origin));
        count::sort(&mut self.lines, self.sort);
        if self.is_inverted {
            self.lines.reverse();
        }
        self.selected = self.selected.min(self.lines.len().saturating_sub(1));
    }

    /// The columns that there are.
    pub(super) fn columns(&self) -> impl Iterator<Item = (Column, &'static str)> {
        let has = |column| match column {
            Column::Wait => self.has_wait,
            Column::Gil => self.has_gil,
            _ => true,
        };
        COLUMNS.into_iter().filter(move |(column, _)| has(*column))
    }

    /// What was recorded so far, in words.
    pub(super) fn so_far(&self) -> String {
        match &self.profile {
            None if self.ended.is_some() => "no samples".to_owned(),
            None => "waiting for the first samples".to_owned(),
            Some(profile) => format!(
                "CPU {:.0} %   {} samples   {}",
                self.load,
                profile.samples.len(),
                duration(self.now_ns.saturating_sub(profile.start_ns()))
            ),
        }
    }
}
