//! `rsunwind top`: who uses the CPU, live.
//!
//! Start at [`run`]. `rsunwind record` records as ever ([`recorder`]); a thread of ours reads what
//! is there again and again, the terminal shows it ([`state`], [`draw`]).
//!
//! | file | |
//! |---|---|
//! | `count` | the lines of the table, from a profile |
//! | `keys` | what keys do |
//!
//! Not here: how a recording is counted ([`crate::report::table`]).

mod count;
mod draw;
mod keys;
mod recorder;
mod state;

use crate::profile::Profile;
use crate::underway::Target;
use crate::visible::visible;
use clap::Args as ClapArgs;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use recorder::{Recorder, Source};
use state::State;
use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is read, at most; reading takes a fifth of the time at most. At first it is read
/// more often: who looks wants to see something at once.
const INTERVAL: Duration = Duration::from_secs(1);
const FIRST_INTERVAL: Duration = Duration::from_millis(50);
const READING_SHARE: u32 = 4;
/// How long a key is waited for before the picture is drawn again.
const TICK: Duration = Duration::from_millis(100);

/// Signals that end it as the key does: else the terminal would stay as it is.
const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Arguments of `rsunwind top`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Keys: Tab changes the view, < and > sort, / filters, Enter shows callers, l lines, Space stands still, ? helps, q ends.
What a program that is started prints is not shown. The recording is gone at the end: rsunwind record keeps one.

Examples:
  rsunwind top -- ./program arguments
  rsunwind top -p 1234
  rsunwind top -a
  rsunwind top -p nginx")]
pub struct Args {
    /// Samples per second of CPU time, per thread
    #[arg(short = 'F', long, value_name = "HZ", default_value = "99")]
    pub rate: String,
    /// Also record time off the CPU, and show in which functions and threads it is
    #[arg(long)]
    pub off_cpu: bool,
    /// Everything on the machine (as root)
    #[arg(short, long, group = "target")]
    pub all: bool,
    /// What is recorded
    #[command(flatten)]
    pub target: Target,
}

/// Why `rsunwind top` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing to draw on.
    #[error("this is no terminal: rsunwind record writes what rsunwind report shows")]
    NoTerminal,
    /// The recording failed; what it said.
    #[error("nothing could be recorded: {0}")]
    Recording(String),
    /// Our own thread has panicked.
    #[error("the recording is not read any more: rsunwind has a defect, which it told above")]
    Reading,
    /// The terminal, or the folder for the recording.
    #[error("{0}")]
    System(#[source] io::Error),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::NoTerminal => 2,
            Self::Recording(_) | Self::Reading | Self::System(_) => 1,
        }
    }
}

/// Shows it until a key ends it.
///
/// # Errors
/// Any [`Error`].
pub fn run(args: &Args) -> Result<(), Error> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Error::NoTerminal);
    }
    let recorder = Recorder::start(args)?;
    // Not before: what is started must not have them blocked. Not later: our threads must.
    let signals = take_signals().map_err(|errno| Error::System(errno.into()))?;
    let profiles = read_on(recorder.source()).map_err(Error::System)?;
    let shown = ratatui::try_init()
        .map_err(Error::System)
        .and_then(|mut terminal| show(&mut terminal, &what(args), &recorder, &signals, &profiles));
    // It may have failed half-way.
    ratatui::restore();
    shown
}

fn take_signals() -> nix::Result<SignalFd> {
    let set: SigSet = ENDING.into_iter().collect();
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

fn what(args: &Args) -> String {
    let words = args
        .target
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let words: Vec<_> = words.collect();
    match &args.target.pid {
        _ if args.all => "all processes".to_owned(),
        Some(pids) => visible(pids).into_owned(),
        None => visible(&words.join(" ")).into_owned(),
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    what: &str,
    recorder: &Recorder,
    signals: &SignalFd,
    profiles: &Receiver<(Profile, u64)>,
) -> Result<(), Error> {
    let mut state = State::default();
    loop {
        match profiles.try_recv() {
            Ok((profile, now_ns)) => {
                recorder.limit();
                state.take(profile, now_ns);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(Error::Reading),
        }
        state.is_full = recorder.is_full();
        if state.ended.is_none() {
            state.ended = recorder.has_ended();
        }
        if let Some(said) = state
            .ended
            .as_ref()
            .filter(|said| !said.is_empty() && state.lines.is_empty())
        {
            let said = said.trim();
            let said = said.strip_prefix("rsunwind: ").unwrap_or(said);
            return Err(Error::Recording(said.to_owned()));
        }
        if signals.read_signal().is_ok_and(|signal| signal.is_some()) {
            return Ok(());
        }
        terminal
            .draw(|frame| draw::draw(frame, what, &state))
            .map_err(Error::System)?;
        if event::poll(TICK).map_err(Error::System)?
            && let Event::Key(key) = event::read().map_err(Error::System)?
            && key.kind == KeyEventKind::Press
            && !state.key(key)
        {
            return Ok(());
        }
    }
}

/// Reads again and again; the thread ends when nobody takes it any more.
fn read_on(mut source: Source) -> io::Result<Receiver<(Profile, u64)>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new().spawn(move || {
        let mut before = Duration::ZERO;
        let mut interval = FIRST_INTERVAL;
        loop {
            let began = Instant::now();
            if let Some(read) = source.read() {
                if sender.send(read).is_err() {
                    break;
                }
                interval = (interval * 2).min(INTERVAL);
            }
            // What took long once looked up names, which are kept.
            let took = began.elapsed();
            thread::sleep(interval.max(took.min(before) * READING_SHARE));
            before = took;
        }
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn all(words: &[&str]) -> Option<bool> {
        let words = [&["top"], words].concat();
        let parsed = Command::try_parse_from(words).ok();
        parsed.map(|command| command.args.all)
    }

    #[test]
    fn one_of_what_can_be_recorded_is_asked_for() {
        assert_eq!(all(&["-a"]), Some(true));
        assert_eq!(all(&["-p", "1"]), Some(false));
        assert_eq!(all(&["--off-cpu", "--", "ls", "-a"]), Some(false));
        assert_eq!(all(&[]), None);
        assert_eq!(all(&["-a", "-p", "1"]), None);
        assert_eq!(all(&["-a", "--", "ls"]), None);
        assert_eq!(all(&["-p", "1", "--", "ls"]), None);
    }
}
