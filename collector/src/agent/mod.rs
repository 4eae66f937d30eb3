//! `rsunwind agent`: records at a low rate for as long as a program runs, and sends a profile of
//! each window of time to where profiles are kept.
//!
//! Start at [`run`].
//!
//! ```text
//! program ─► rsunwind record ─► recording, in shared memory      (a process; goes on without us)
//!                                   │  windows: which part is next; finished parts are taken away
//!                                   ▼
//!                                 reader: read and named          (a process; ends if it grows)
//!                                   │  form: pprof, otlp
//!                                   ▼
//!                                 queue ─► sender ─► receiver     (a thread for each)
//! ```
//!
//! Nothing in this room can hold the program up: what it waits for is behind the recording.

mod address;
mod args;
mod books;
mod carry;
mod chosen;
mod containers;
mod context;
mod course;
mod form;
mod meanwhile;
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
use crate::visible::say;
pub use args::Args;
use course::Course;
use engine::wire::session::Orders;
use form::Form;
use meanwhile::Asks;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow};
use queue::{Limits, Message};
use recorder::Recorder;
use sender::{Prepared, Sender};
use settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use window::{Asked, Made};
use windows::{SETTLED, Windows};

/// How often is looked whether the recording has begun.
const GLANCE: Duration = Duration::from_millis(50);
/// How often it is let grow on. It is looked at once more when what a window takes has settled.
const LOOK: Duration = Duration::from_secs(5);
/// How long a recording may take to end that gives way to another.
const ENDING: Duration = Duration::from_secs(30);
/// How long the last windows may take to be sent.
const PARTING: Duration = Duration::from_secs(5);

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
    let course = Course::of(args, &settings).map_err(Error::Settings)?;
    let began = course.beginning(args);
    let mut agent = Agent {
        args,
        told: began.orders(&began),
        attributes: context::attributes(args, &course, &settings, &BTreeMap::new()).into(),
        began,
        course,
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
    // Before there is a program: one that came between would end us, and leave it.
    let signals = Signals::take().map_err(|errno| Error::System(errno.into()))?;
    let start = |course: &Course| {
        Recorder::start(args, course, *signals.inherited()).map_err(Error::System)
    };
    let mut recorder = start(&agent.began)?;
    let status = loop {
        let mut windows = Windows::of(recorder.folder(), recorder::NAME, args.is_running());
        let left = agent.follow(&mut recorder, &signals, &mut windows);
        if matches!(left, Left::Ended(_)) {
            notify::stopping();
        }
        let asked = agent.asked();
        agent.send(windows.rest(&asked));
        match left {
            Left::Ended(status) => break status,
            // Nothing is started by it.
            Left::GivesWay => {
                agent.began = agent.course.clone();
                recorder = start(&agent.began)?;
            }
        }
    };
    let deadline = Instant::now() + PARTING;
    let senders = agent.senders.into_iter().chain(agent.leaving);
    let senders: Vec<_> = senders.collect();
    senders.iter().for_each(|one| one.end_by(deadline));
    for sender in senders {
        sender.finish(args.verbose);
    }
    Ok(status)
}

/// How a recording was left.
enum Left {
    /// It has ended with that status.
    Ended(u8),
    /// Another is to take its place.
    GivesWay,
}

struct Agent<'a> {
    args: &'a Args,
    settings: Settings,
    /// What is recorded, and as it was when the recording began.
    course: Course,
    began: Course,
    /// What the program knows of the difference.
    told: Orders,
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
        let attributes = context::attributes(self.args, &self.course, &settings, &self.published);
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
        let read = Settings::reread(self.args).map_err(|error| error.to_string());
        let taken = read.and_then(|settings| {
            let course = Course::of(self.args, &settings)?;
            course.may_follow(&self.began)?;
            if settings != self.settings {
                self.connect(settings)?;
            }
            self.course = course;
            Ok(())
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

    /// The program is to be sampled as settings say by now.
    fn tell(&mut self, session: &Path) {
        let orders = self.course.orders(&self.began);
        if std::mem::replace(&mut self.told, orders) != orders
            && let Err(error) = course::tell(session, orders)
        {
            say(format_args!(
                "the program cannot be told of another rate: {error}"
            ));
        }
    }

    /// What is asked for of each window.
    fn asked(&self) -> Asked {
        Asked {
            forms: self.forms(),
            attributes: Arc::clone(&self.attributes),
            processes: self.course.only.clone(),
            // Else what is said of all is said of the one.
            each: self.args.is_running() && context::running(&self.course).is_none(),
        }
    }

    /// Cuts windows until the recording has ended, or another is to take its place.
    fn follow(
        &mut self,
        recorder: &mut Recorder,
        signals: &Signals,
        windows: &mut Windows,
    ) -> Left {
        let mut begun = false;
        let mut next = Instant::now() + self.settings.window;
        loop {
            if let Some(status) = recorder.ended() {
                return Left::Ended(status);
            }
            if self.course.takes_a_new_recording(&self.began) {
                match recorder.end_by(Instant::now() + ENDING) {
                    Some(0) => return Left::GivesWay,
                    Some(status) => return Left::Ended(status),
                    None => {}
                }
            }
            if let Some(session) = windows.session() {
                self.tell(session);
                if !std::mem::replace(&mut begun, true) {
                    notify::ready();
                }
                if let Some(length) = windows.look() {
                    recorder.extend(length);
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
                let mut asks = Asks::Nothing;
                let mut wait = meanwhile::passing_on(signals, recorder, &mut asks);
                let made = windows.next(&self.asked(), &mut wait);
                drop(wait);
                self.send(made);
                if asks == Asks::Settings {
                    self.reload();
                }
            }
            let left = next.saturating_duration_since(Instant::now());
            let settles =
                Some(left.saturating_sub(SETTLED + GLANCE)).filter(|left| !left.is_zero());
            let left = left.min(if begun { LOOK } else { GLANCE });
            let left = settles.map_or(left, |settles| settles.min(left));
            let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            // An interrupted poll is a short sleep.
            let _ = poll(
                &mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)],
                timeout,
            );
            while let Some(arrival) = signals.next() {
                if meanwhile::pass_on(arrival, recorder) == Asks::Settings {
                    self.reload();
                }
            }
        }
    }

    /// What the target process says of itself by now; when it is gone, what it said holds.
    fn learn(&mut self, recorder: &mut Recorder) {
        let pid = context::running(&self.course).or_else(|| recorder.program());
        let pid = pid.and_then(|pid| u32::try_from(pid).ok());
        let published = pid.map_or_else(BTreeMap::new, process_context::of);
        if !published.is_empty() && published != self.published {
            self.published = published;
            let all = context::attributes(self.args, &self.course, &self.settings, &self.published);
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
