//! What is shown, and what keys do to it. Nothing here knows a terminal.

use crate::numbers::duration;
use crate::profile::{Names, Profile};
use crate::report::table::{Row, rows, weighed};
use crate::report::{By, Sort};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::HashMap;

/// Percentages are of this time, ns: the newest.
const RECENT_NS: u64 = 5_000_000_000;

/// The views, in the order of the Tab key.
pub(super) const VIEWS: [(By, &str); 4] = [
    (By::Function, "functions"),
    (By::Thread, "threads"),
    (By::Process, "processes"),
    (By::Module, "modules"),
];

/// A row of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    /// Of the recent time, per cent of one processor: own, and with what it called.
    pub(super) recent: [f64; 2],
    /// Since the beginning.
    pub(super) row: Row,
}

/// The picture.
#[derive(Debug)]
pub(super) struct State {
    profile: Option<Profile>,
    /// When it was read (`CLOCK_MONOTONIC`, ns).
    now_ns: u64,
    pub(super) view: usize,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// Whether keys go to the filter.
    pub(super) typing: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The function whose callers are shown.
    pub(super) callers_of: Option<String>,
    pub(super) selected: usize,
    pub(super) lines: Vec<Line>,
    /// CPU time of the recent time, per cent of one processor.
    pub(super) load: f64,
    /// What became of the recording.
    pub(super) ended: Option<String>,
    /// Whether the recording is about as long as it may be.
    pub(super) is_full: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            profile: None,
            now_ns: 0,
            view: 0,
            sort: Sort::Own,
            filter: String::new(),
            typing: false,
            paused: false,
            help: false,
            callers_of: None,
            selected: 0,
            lines: Vec::new(),
            load: 0.0,
            ended: None,
            is_full: false,
        }
    }
}

impl State {
    /// Takes in what was read just now, unless the picture stands still.
    pub(super) fn take(&mut self, profile: Profile, now_ns: u64) {
        if !self.paused {
            (self.profile, self.now_ns) = (Some(profile), now_ns);
            self.count();
        }
    }

    /// What a key does; whether to go on.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return false;
        }
        if self.typing {
            self.type_in(key.code);
            return true;
        }
        if self.help {
            self.help = false;
            return true;
        }
        let last = self.lines.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => return false,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = true,
            KeyCode::Tab => self.turn_to((self.view + 1) % VIEWS.len()),
            KeyCode::BackTab => self.turn_to((self.view + VIEWS.len() - 1) % VIEWS.len()),
            KeyCode::Char('1') => self.sort_by(Sort::Own),
            KeyCode::Char('2') => self.sort_by(Sort::Total),
            KeyCode::Char('n') => self.sort_by(Sort::Name),
            KeyCode::Char('/') | KeyCode::F(4) => self.typing = true,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = last.min(self.selected + 1),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected = last.min(self.selected + PAGE),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Enter if self.view == 0 && self.callers_of.is_none() => self.callers(),
            KeyCode::Esc => {
                self.filter.clear();
                self.callers_of = None;
                self.count();
            }
            _ => {}
        }
        true
    }

    fn type_in(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(character) => self.filter.push(character),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            KeyCode::Enter => self.typing = false,
            _ => {}
        }
        self.count();
    }

    fn turn_to(&mut self, view: usize) {
        (self.view, self.selected, self.callers_of) = (view, 0, None);
        self.count();
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.count();
    }

    fn callers(&mut self) {
        let selected = self.lines.get(self.selected);
        self.callers_of = selected.map(|line| line.row.name.clone());
        self.selected = 0;
        self.count();
    }

    /// Makes the lines anew.
    fn count(&mut self) {
        let Some(profile) = &self.profile else { return };
        let from_ns = self.now_ns.saturating_sub(RECENT_NS);
        let window_ns = RECENT_NS
            .min(self.now_ns.saturating_sub(profile.start_ns()))
            .max(1);
        let percent = |ns: u64| 100.0 * ns as f64 / window_ns as f64;
        let recent = |sample: &crate::profile::Sample| match sample.time_ns >= from_ns {
            true => profile.time_ns(sample),
            false => 0,
        };
        self.load = percent(profile.weighed().map(recent).fold(0, u64::saturating_add));
        let (all, new) = match &self.callers_of {
            Some(function) => (
                callers(profile, function, |sample| profile.time_ns(sample)),
                callers(profile, function, recent),
            ),
            None => {
                let by = VIEWS[self.view].0;
                (
                    rows(profile, by, Names::Short),
                    weighed(profile, by, Names::Short, recent),
                )
            }
        };
        let new: HashMap<(&str, &str), &Row> = new
            .iter()
            .map(|row| ((&*row.name, &*row.origin), row))
            .collect();
        let shown = all.into_iter().filter(|row| {
            let has = |text: &str| text.to_lowercase().contains(&self.filter.to_lowercase());
            has(&row.name) || has(&row.origin)
        });
        let mut lines: Vec<Line> = shown
            .map(|row| {
                let new = new.get(&(&*row.name, &*row.origin));
                Line {
                    recent: new
                        .map_or([0.0; 2], |new| [percent(new.own_ns), percent(new.total_ns)]),
                    row,
                }
            })
            .collect();
        let order = |a: &Line, b: &Line, first: usize| {
            let by = |index: usize| b.recent[index].total_cmp(&a.recent[index]);
            by(first).then_with(|| by(1 - first))
        };
        lines.sort_by(|a, b| {
            let recent = match self.sort {
                Sort::Own => order(a, b, 0).then_with(|| b.row.own_ns.cmp(&a.row.own_ns)),
                Sort::Total => order(a, b, 1).then_with(|| b.row.total_ns.cmp(&a.row.total_ns)),
                Sort::Name => std::cmp::Ordering::Equal,
            };
            recent.then_with(|| (&a.row.name, &a.row.origin).cmp(&(&b.row.name, &b.row.origin)))
        });
        self.lines = lines;
        self.selected = self.selected.min(self.lines.len().saturating_sub(1));
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

/// Rows that a page key passes over.
const PAGE: usize = 15;

/// Who calls a function: time in it, by the function next to it on the stack.
fn callers(
    profile: &Profile,
    function: &str,
    weigh: impl Fn(&crate::profile::Sample) -> u64,
) -> Vec<Row> {
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
