//! The progress bar of symbolization: on a terminal, and only once it has taken a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ratatui::crossterm::terminal::is_raw_mode_enabled;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);

/// Whether there is a terminal for it, and not one on which a picture is drawn.
fn is_ours() -> bool {
    std::io::stderr().is_terminal() && !is_raw_mode_enabled().unwrap_or(false)
}

/// Work under way.
pub(super) struct Progress {
    total: u64,
    started: Instant,
    state: Mutex<(u64, Option<ProgressBar>)>,
}

impl Progress {
    /// For that many addresses.
    pub(super) fn new(total: usize) -> Self {
        Self {
            total: total as u64,
            started: Instant::now(),
            state: Mutex::new((0, None)),
        }
    }

    /// So many more are done.
    pub(super) fn add(&self, count: usize) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        state.0 += count as u64;
        let done = state.0;
        if state.1.is_none() && self.started.elapsed() > PATIENCE && is_ours() {
            state.1 = Some(self.bar());
        }
        if let Some(bar) = &state.1 {
            bar.set_position(done);
        }
    }

    fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("symbols {wide_bar} {pos}/{len} addresses");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar
    }

    /// All is done: the bar goes away.
    pub(super) fn finish(self) {
        if let Ok((_, Some(bar))) = self.state.into_inner() {
            bar.finish_and_clear();
        }
    }
}
