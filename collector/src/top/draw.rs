//! The picture on a terminal; one of 80 columns and 24 lines suffices.

use super::state::{Column, Focus, State, VIEWS};
use crate::numbers::duration;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, TableState};

const HELP: &str = "\
Tab, Shift-Tab   functions, threads, processes, modules, cgroups
1, 2, 3, 4, n    sort by own time, with what it calls, waiting, GIL, name
< , > (F6)       sort by the column before, the next one; I, r: invert
/ (F3, F4)       filter by name (Enter: done, Esc: none)
Enter            who calls the function; what the thread, process, cgroup does
l                the lines of the function       Esc   back
Up, Down, PgUp, PgDn, Home, End   select
Space, p         stand still, go on
q, F10, Ctrl-C   end; a program that was started ends, too

Percentages are of one processor, in the last 5 seconds. %WAIT (with
--off-cpu) is time off the CPU, once it is over; %GIL is CPU time with
Python's lock. The recording, in TMPDIR, may grow to 1 GiB; then nothing
new is shown. Any key closes this.";

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, what: &str, state: &State) {
    let [head, views, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let mode = match (&state.ended, state.is_full, state.paused) {
        (Some(_), ..) => "   [ended]",
        (None, true, _) => "   [1 GiB: no more is kept]",
        (None, false, true) => "   [paused]",
        (None, false, false) => "",
    };
    frame.render_widget(
        Paragraph::new(format!("{}{mode}   {what}", state.so_far())),
        head,
    );
    frame.render_widget(Paragraph::new(heading(state)), views);
    table(frame, body, state);
    let keys = match (state.typing, state.filter.is_empty()) {
        (true, _) => format!("/{}_", state.filter),
        (false, false) => format!("/{}   (Esc: no filter)   ? help   q quit", state.filter),
        (false, true) => {
            "Tab view  < > sort  / filter  Enter callers  l lines  p pause  ? help  q quit"
                .to_owned()
        }
    };
    frame.render_widget(Paragraph::new(keys), foot);
    if state.help {
        let area = frame.area();
        let [area] = Layout::vertical([Constraint::Length(HELP.lines().count() as u16 + 2)])
            .flex(ratatui::layout::Flex::Center)
            .areas(area);
        frame.render_widget(Clear, area);
        frame.render_widget(
            Paragraph::new(HELP).block(Block::bordered().title("rsunwind top")),
            area,
        );
    }
}

fn heading(state: &State) -> Line<'_> {
    match &state.focus {
        Some(Focus::Callers(function)) => return Line::from(format!("callers of {function}")),
        Some(Focus::Lines(function)) => return Line::from(format!("lines of {function}")),
        Some(Focus::Within(_, name, _)) => return Line::from(format!("functions of {name}")),
        None => {}
    }
    let bold = Style::new().add_modifier(Modifier::REVERSED);
    let names = VIEWS.iter().enumerate().flat_map(|(index, (_, name))| {
        let style = if index == state.view {
            bold
        } else {
            Style::new()
        };
        [Span::styled(*name, style), Span::raw("  ")]
    });
    Line::from(names.collect::<Vec<_>>())
}

/// Fewer columns do not have room for times beside more than two percentages.
const WIDE: u16 = 100;

fn table(frame: &mut Frame<'_>, area: ratatui::layout::Rect, state: &State) {
    let mark = |column: Column, name: &str| match (state.sort == column, state.is_inverted) {
        (true, false) => format!("{name}*"),
        (true, true) => format!("{name}^"),
        (false, _) => name.to_owned(),
    };
    let amounts: Vec<_> = state
        .columns()
        .filter(|(it, _)| *it != Column::Name)
        .collect();
    let has_times = amounts.len() == 2 || area.width >= WIDE;
    let times =
        |own: String, total: String| has_times.then_some([own, total]).into_iter().flatten();
    let header = amounts.iter().map(|(column, name)| mark(*column, name));
    let header = header
        .chain(times("SELF".to_owned(), "TOTAL".to_owned()))
        .chain([mark(Column::Name, "NAME"), "FROM".to_owned()]);
    let rows = state.lines.iter().map(|line| {
        let amounts = amounts.iter();
        let amounts = amounts.map(|(column, _)| format!("{:.1}", line.recent[*column as usize]));
        let times = times(duration(line.row.own_ns), duration(line.row.total_ns));
        let words = [line.row.name.clone(), line.row.origin.clone()];
        Row::new(amounts.chain(times).chain(words))
    });
    let amounts = amounts
        .iter()
        .map(|(_, name)| Constraint::Length(name.len() as u16 + 1));
    let times = has_times.then_some([Constraint::Length(8); 2]);
    let widths = amounts
        .chain(times.into_iter().flatten())
        .chain([Constraint::Fill(3), Constraint::Fill(1)]);
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut selection = TableState::default().with_selected(Some(state.selected));
    frame.render_stateful_widget(table, area, &mut selection);
}
