//! What keys do to the picture.

use super::state::{Column, Focus, State, VIEWS};
use crate::report::By;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Rows that a page key passes over.
const PAGE: usize = 15;

impl State {
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
            KeyCode::Char('1' | 'P') => self.sort_by(Column::Own),
            KeyCode::Char('2' | 'T') => self.sort_by(Column::Total),
            KeyCode::Char('3') if self.has_wait => self.sort_by(Column::Wait),
            KeyCode::Char('4') if self.has_gil => self.sort_by(Column::Gil),
            KeyCode::Char('n') => self.sort_by(Column::Name),
            KeyCode::Char('>' | '.') | KeyCode::F(6) => self.sort_by_next(1),
            KeyCode::Char('<' | ',') => self.sort_by_next(-1),
            KeyCode::Char('I' | 'r') => {
                self.is_inverted = !self.is_inverted;
                self.count();
            }
            KeyCode::Char('/' | '\\') | KeyCode::F(3 | 4) => self.typing = true,
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = last.min(self.selected + 1),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.selected = last.min(self.selected + PAGE),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Enter => self.enter(),
            KeyCode::Char('l') => self.look_at_lines(),
            KeyCode::Esc => {
                self.filter.clear();
                self.look_at(None);
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
        self.view = view;
        self.look_at(None);
    }

    fn sort_by(&mut self, sort: Column) {
        (self.sort, self.is_inverted) = (sort, false);
        self.count();
    }

    /// By the next of the columns that are shown, or the one before.
    fn sort_by_next(&mut self, step: isize) {
        let columns: Vec<Column> = self.columns().map(|(column, _)| column).collect();
        let at = columns.iter().position(|column| *column == self.sort);
        let next = at.unwrap_or(0).cast_signed() + step;
        let next = next.rem_euclid(columns.len().cast_signed());
        self.sort_by(columns[next.unsigned_abs()]);
    }

    /// Whether rows are functions.
    fn shows_functions(&self) -> bool {
        match &self.focus {
            None => VIEWS[self.view].0 == By::Function,
            Some(Focus::Within(..)) => true,
            Some(_) => false,
        }
    }

    /// Who calls the selected function, or what the selected thread, process or cgroup does.
    fn enter(&mut self) {
        let Some(line) = self.lines.get(self.selected) else {
            return;
        };
        let (name, origin) = (line.row.name.clone(), line.row.origin.clone());
        match (VIEWS[self.view].0, &self.focus) {
            _ if self.shows_functions() => self.look_at(Some(Focus::Callers(name))),
            (by @ (By::Thread | By::Process | By::Cgroup), None) => {
                self.look_at(Some(Focus::Within(by, name, origin)));
            }
            _ => {}
        }
    }

    fn look_at_lines(&mut self) {
        let function = match (&self.focus, self.lines.get(self.selected)) {
            (Some(Focus::Callers(function)), _) => function.clone(),
            (_, Some(line)) if self.shows_functions() => line.row.name.clone(),
            _ => return,
        };
        self.look_at(Some(Focus::Lines(function)));
    }

    fn look_at(&mut self, focus: Option<Focus>) {
        (self.focus, self.selected) = (focus, 0);
        self.count();
    }
}
