//! `rsunwind agent`: records at a low rate for as long as a program runs, and sends a profile of
//! each window of time to where profiles are kept.
//!
//! Start at [`run`].
//!
//! ```text
//! program ─► rsunwind record ─► recording, in shared memory      (a process; goes on without us)
//!                                   │  windows: which part is next; what is done with is taken away
//!                                   ▼
//!                                 reader: read and named          (a process; ends if it grows)
//!                                   │  form: pprof, otlp
//!                                   ▼
//!                                 queue ─► sender ─► receiver     (a thread for each)
//! ```
//!
//! Nothing in this room can hold the program up: what it waits for is behind the recording.

mod books;
mod carry;
mod context;
mod form;
mod names;
mod notify;
mod otlp;
mod process_context;
mod published;
mod queue;
mod reader;
mod receiver;
mod recorder;
mod sender;
mod settings;
mod spool;
mod window;
mod windows;

use crate::record::signals::Signals;
use crate::underway::Target;
use crate::units;
use crate::visible::say;
use clap::Args as ClapArgs;
use form::Form;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use queue::{Limits, Message};
use recorder::Recorder;
use sender::{Prepared, Sender};
use settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use window::Made;
use windows::Windows;

/// How often is looked whether the recording has begun.
const GLANCE: Duration = Duration::from_millis(50);
/// How often it is let grow on.
const LOOK: Duration = Duration::from_secs(1);
/// How long the last windows may take to be sent.
const PARTING: Duration = Duration::from_secs(5);

/// Arguments of `rsunwind agent`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The program keeps its input, output, signals and terminal, and its exit status becomes that of rsunwind.
SIGHUP reads the settings anew; SIGTERM reaches the program, or ends the recording of -p.

Examples:
  rsunwind agent --otlp http://localhost:4318 -- ./server
  rsunwind agent --pyroscope http://pyroscope:4040 --label version=1.2 -p nginx
  rsunwind agent --files /var/lib/profiles --config /etc/rsunwind/agent.toml -- ./server")]
pub struct Args {
    /// Samples per second of CPU time, per thread
    #[arg(short = 'F', long, value_name = "HZ", default_value = "49", value_parser = units::Rate::parse)]
    pub rate: units::Rate,

    /// How long windows are, 2s or more [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = window_length)]
    pub window: Option<Duration>,

    /// Send to an OpenTelemetry receiver over HTTP [default: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    pub otlp: Vec<String>,

    /// Send to Pyroscope
    #[arg(long, value_name = "URL")]
    pub pyroscope: Vec<String>,

    /// Send to Parca
    #[arg(long, value_name = "URL")]
    pub parca: Vec<String>,

    /// Send to ClickHouse, to the database of that name [default name: default]
    #[arg(long, value_name = "URL")]
    pub clickhouse: Vec<String>,

    /// Write pprof files to a folder, of which the oldest go when it is full
    #[arg(long, value_name = "DIR")]
    pub files: Vec<String>,

    /// What the service is called [default: OTEL_SERVICE_NAME, or the program's name]
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,

    /// Say this of everything that is sent (may be given several times)
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,

    /// Where windows wait that cannot be sent and find no room in memory; it outlives the agent
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,

    /// Settings (TOML), which are read anew at SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Say how many windows were sent even if all were
    #[arg(short, long)]
    pub verbose: bool,

    /// What is recorded
    #[command(flatten)]
    pub target: Target,
}

fn window_length(text: &str) -> Result<Duration, String> {
    let length = units::duration(text)?;
    match length < windows::SETTLED {
        true => Err("windows are of 2s or more".into()),
        false => Ok(length),
    }
}

/// Why the agent does not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody is there to send to.
    #[error(
        "nowhere to send to: give --otlp URL, --pyroscope URL, --parca URL, --clickhouse URL or --files DIR, a --config file with [[send]], or \
         OTEL_EXPORTER_OTLP_ENDPOINT"
    )]
    NoReceiver,
    /// A setting is wrong; which.
    #[error("{0}")]
    Settings(String),
    /// The recorder, or the folder for the recording.
    #[error("the recording could not be begun: {0}")]
    System(#[source] io::Error),
    /// The other side of the agent's own.
    #[error("{0}")]
    Window(String),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::NoReceiver | Self::Settings(_) => 2,
            Self::System(_) | Self::Window(_) => 1,
        }
    }
}

/// Reads windows, for the agent that asks for them on standard input.
///
/// # Errors
/// [`Error::Window`].
pub fn read_window() -> Result<(), Error> {
    reader::run().map_err(Error::Window)
}

/// Records and sends, and gives the status to exit with: the program's.
///
/// # Errors
/// Any [`Error`]; the program was not started then.
pub fn run(args: &Args) -> Result<u8, Error> {
    let settings = Settings::read(args)?;
    let mut agent = Agent {
        args,
        attributes: context::attributes(args, &settings, &BTreeMap::new()).into(),
        published: BTreeMap::new(),
        settings: settings.clone(),
        senders: Vec::new(),
        leaving: Vec::new(),
    };
    // Threads that send get no signals: what they did not hold back would end us, or be lost.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let connected = agent.connect(settings);
    let restored = mask.and_then(|mask| mask.thread_set_mask());
    connected.map_err(Error::Settings)?;
    restored.map_err(|errno| Error::System(errno.into()))?;
    let mut recorder = Recorder::start(args).map_err(Error::System)?;
    // Not before: what is started must not have them blocked.
    let signals = Signals::take().map_err(|errno| Error::System(errno.into()))?;
    let mut windows = Windows::of(recorder.folder(), recorder::NAME, args.target.pid.is_some());
    let status = agent.follow(&mut recorder, &signals, &mut windows);
    notify::stopping();
    agent.send(windows.rest(&agent.forms(), &agent.attributes));
    let deadline = Instant::now() + PARTING;
    let senders = agent.senders.into_iter().chain(agent.leaving);
    let senders: Vec<_> = senders.collect();
    senders.iter().for_each(|one| one.end_by(deadline));
    for sender in senders {
        sender.finish(args.verbose);
    }
    Ok(status)
}

struct Agent<'a> {
    args: &'a Args,
    settings: Settings,
    /// What is said of everything that is sent.
    attributes: Arc<BTreeMap<String, String>>,
    /// Of that what the target process publishes of itself.
    published: BTreeMap<String, String>,
    senders: Vec<Sender>,
    /// To which nothing new is sent.
    leaving: Vec<Sender>,
}

impl Agent<'_> {
    /// Sends by those settings. Receivers that are still named keep what waits for them; others are
    /// tried for a while.
    fn connect(&mut self, settings: Settings) -> Result<(), String> {
        let attributes = context::attributes(self.args, &settings, &self.published);
        let service = attributes.get("service.name").cloned().unwrap_or_default();
        let limits = Limits {
            // All together have as much.
            memory: settings.limits.memory / settings.receivers.len().max(1) as u64,
            disk: settings.limits.disk / settings.receivers.len().max(1) as u64,
        };
        let mut before: Vec<Option<&Sender>> = self.senders.iter().map(Some).collect();
        let mut prepared = Vec::new();
        for receiver in &settings.receivers {
            let is_it = |one: &Option<&Sender>| one.is_some_and(|one| one.sends_to(receiver));
            let place = before.iter().position(is_it);
            let same = place.and_then(|place| before.get_mut(place)?.take());
            let spool = settings.spool.as_deref();
            let new = Prepared::new(receiver, &service, limits, spool, same)?;
            prepared.push((place, new));
        }
        let mut before: Vec<_> = self.senders.drain(..).map(Some).collect();
        let mut failure = Ok(());
        for (place, new) in prepared {
            let same = place.and_then(|place| before.get_mut(place)?.take());
            let sender = match same {
                Some(mut sender) => {
                    let changed = sender.change(new);
                    failure = failure.and(changed);
                    Ok(sender)
                }
                None => Sender::begin(new),
            };
            match sender {
                Ok(sender) => self.senders.push(sender),
                Err(why) => failure = Err(why),
            }
        }
        let deadline = Instant::now() + PARTING;
        let leaving = before.into_iter().flatten();
        self.leaving
            .extend(leaving.inspect(|sender| sender.end_by(deadline)));
        self.attributes = attributes.into();
        self.settings = settings;
        failure
    }

    /// Settings are read anew; what is wrong with them is said, and those in force stay.
    fn reload(&mut self) {
        notify::reloading();
        let read = Settings::read(self.args).map_err(|error| error.to_string());
        let taken = read.and_then(|settings| match settings == self.settings {
            true => Ok(()),
            false => self.connect(settings),
        });
        match taken {
            Ok(()) => say(format_args!("settings were read anew")),
            Err(why) => say(format_args!("settings stay as they were: {why}")),
        }
        notify::ready();
    }

    /// Those whose time is over say what became of their windows.
    fn part(&mut self) {
        let leaving = std::mem::take(&mut self.leaving).into_iter();
        let (over, left) = leaving.partition(Sender::is_over);
        self.leaving = left;
        let over: Vec<Sender> = over;
        over.into_iter().for_each(|one| one.finish(false));
    }

    /// The forms that are asked for, each once.
    fn forms(&self) -> Vec<Form> {
        let kinds = self.senders.iter().map(|one| one.receiver.kind.form());
        kinds.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Cuts windows until the recording has ended; gives the status to exit with.
    fn follow(&mut self, recorder: &mut Recorder, signals: &Signals, windows: &mut Windows) -> u8 {
        let mut begun = false;
        let mut next = Instant::now() + self.settings.window;
        loop {
            if let Some(status) = recorder.ended() {
                return status;
            }
            if windows.session().is_some() {
                if !std::mem::replace(&mut begun, true) {
                    notify::ready();
                }
                if let Some(recording) = windows.recording() {
                    recorder.extend(&recording);
                }
            }
            self.part();
            let now = Instant::now();
            // Its process may be gone before the window ends, and say it late.
            if next <= now || self.published.is_empty() && windows.is_first() {
                self.learn(recorder);
            }
            if next <= now {
                next = now + self.settings.window;
                let made = windows.next(&self.forms(), &self.attributes);
                self.send(made);
            }
            let left = next.saturating_duration_since(Instant::now());
            let left = left.min(if begun { LOOK } else { GLANCE });
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            // An interrupted poll is a short sleep.
            let _ = poll(
                &mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)],
                timeout,
            );
            while let Some(arrival) = signals.next() {
                match arrival.signal {
                    Signal::SIGHUP => self.reload(),
                    Signal::SIGCHLD | Signal::SIGXFSZ => {}
                    // A key on the terminal has reached it, too.
                    _ if arrival.from_kernel => {}
                    other => recorder.signal(other),
                }
            }
        }
    }

    /// What the target process says of itself by now; when it is gone, what it said holds.
    fn learn(&mut self, recorder: &mut Recorder) {
        let pid = context::running(self.args).or_else(|| recorder.program());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok());
        let published = pid.map_or_else(BTreeMap::new, process_context::of);
        if !published.is_empty() && published != self.published {
            self.published = published;
            let all = context::attributes(self.args, &self.settings, &self.published);
            self.attributes = all.into();
        }
    }

    fn send(&self, made: Result<Made, String>) {
        let made = match made {
            Ok(made) => made,
            Err(why) => {
                say(format_args!("{why}"));
                return;
            }
        };
        for (form, bytes) in made.messages {
            let message = Message {
                bytes: bytes.into(),
                attributes: Arc::clone(&self.attributes),
                from_ns: made.from_ns,
                to_ns: made.to_ns,
            };
            let all = self.senders.iter();
            all.filter(|one| one.receiver.kind.form() == form)
                .for_each(|one| one.push(&message));
        }
    }
}
