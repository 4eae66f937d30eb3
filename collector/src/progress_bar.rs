//! The bar of what takes long ([`crate::progress`]): on a terminal, and only once a command has
//! worked for a second.

use crate::progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is drawn.
const PACE: Duration = Duration::from_millis(100);

static DRAWN: Mutex<Option<(Sender<()>, JoinHandle<()>)>> = Mutex::new(None);

/// A command at work; its bar goes away with this, or before somebody says something.
#[derive(Debug)]
#[must_use]
pub(crate) struct Working(());

impl Working {
    /// Begins to work.
    pub(crate) fn begin() -> Self {
        if std::io::stderr().is_terminal() {
            let (over, is_over) = channel();
            let thread = Builder::new().spawn(move || draw(&is_over));
            let drawn = thread.ok().map(|thread| (over, thread));
            *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = drawn;
        }
        Self(())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        end();
    }
}

/// Takes the bar away, if there is one.
pub(crate) fn end() {
    let drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((over, thread)) = drawn {
        drop(over);
        let _ = thread.join();
    }
}

fn draw(is_over: &Receiver<()>) {
    let goes_on = |time| is_over.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    if !goes_on(PATIENCE) {
        return;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let mut shown = None;
    loop {
        let (step, done) = progress::now();
        if shown.replace(step) != Some(step) {
            let template = match step.total {
                0 => "{msg} {spinner} {elapsed}",
                _ => "{msg} {wide_bar} {percent:>3} %",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_length(step.total);
            bar.set_message(step.words);
        }
        bar.set_position(done.min(step.total));
        bar.tick();
        if !goes_on(PACE) {
            break;
        }
    }
    bar.finish_and_clear();
}
