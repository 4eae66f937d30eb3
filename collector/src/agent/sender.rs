//! Sends windows to one receiver, in a thread of its own: whatever it does, nobody waits for it.

use super::queue::{Limits, Message, Queue};
use super::receiver::{Connection, Outcome, Receiver};
use super::spool::Spool;
use crate::numbers::plural;
use crate::visible::{Shown as _, say};
use flate2::Crc;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long is waited after the first failure, and after many.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// So much of an address is in the name of its folder, letters; the rest is in its sum.
const LONGEST_ADDRESS: usize = 128;
/// What a receiver asks for is believed up to that.
const LONGEST_ASKED: Duration = Duration::from_secs(300);
/// So often, one after the other, it is asked again at once if that is what it asks for.
const AT_ONCE: u32 = 3;

/// What became of the windows of one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    taken: u64,
    refused: u64,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    connection: Arc<Connection>,
    /// How often settings have changed: then what has failed is tried at once.
    changes: u64,
    counts: Counts,
    /// When all must be over.
    deadline: Option<Instant>,
    /// Nothing more will be sent.
    over: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done by who panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receiver that is sent to.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) receiver: Receiver,
    /// Where windows are to wait.
    folder: Option<PathBuf>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// What is needed to send to a receiver, or to go on in another way.
#[derive(Debug)]
pub(super) struct Prepared {
    receiver: Receiver,
    connection: Connection,
    limits: Limits,
    folder: Option<PathBuf>,
    /// That folder, if it is another one than before.
    spool: Option<Option<Spool>>,
}

impl Prepared {
    /// Gets ready; `before` sends to the same receiver by other settings.
    ///
    /// # Errors
    /// A sentence with the receiver's name.
    pub(super) fn new(
        receiver: &Receiver,
        service: &str,
        limits: Limits,
        spool: Option<&Path>,
        before: Option<&Sender>,
    ) -> Result<Self, String> {
        let connection = Connection::new(receiver.clone(), limits.disk)?;
        let folder = spool.map(|spool| spool.join(spool_name(receiver, service)));
        let is_known = before.is_some_and(|before| before.folder == folder);
        let spool = (!is_known).then(|| folder.as_deref().map(Spool::open).transpose());
        let spool = spool.transpose();
        Ok(Self {
            receiver: receiver.clone(),
            connection,
            limits,
            folder,
            spool: spool.map_err(|error| failed(receiver, &error))?,
        })
    }
}

fn failed(receiver: &Receiver, error: &io::Error) -> String {
    format!("{}: {error}", receiver.address)
}

impl Sender {
    /// Begins.
    ///
    /// # Errors
    /// A sentence with the receiver's name.
    pub(super) fn begin(prepared: Prepared) -> Result<Self, String> {
        let receiver = prepared.receiver;
        let failed = |error: io::Error| failed(&receiver, &error);
        let mut queue = Queue::new(prepared.limits, prepared.spool.flatten()).map_err(failed)?;
        let folder = prepared.folder.as_deref();
        queue.adopt(folder.map_or(Vec::new(), Spool::abandoned));
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue,
                connection: Arc::new(prepared.connection),
                changes: 0,
                counts: Counts::default(),
                deadline: None,
                over: false,
            }),
            changed: Condvar::new(),
        });
        let sending = Arc::clone(&shared);
        let thread = thread::Builder::new().spawn(move || {
            send_on(&sending);
            sending.state().over = true;
            sending.changed.notify_all();
        });
        Ok(Self {
            thread: thread.map_err(failed)?,
            folder: prepared.folder,
            receiver,
            shared,
        })
    }

    /// Goes on by other settings, with all that waits.
    ///
    /// # Errors
    /// A sentence with the receiver's name; nothing is changed then.
    pub(super) fn change(&mut self, prepared: Prepared) -> Result<(), String> {
        let mut state = self.shared.state();
        let changed = state.queue.change(prepared.limits, prepared.spool);
        changed.map_err(|error| failed(&self.receiver, &error))?;
        state.connection = Arc::new(prepared.connection);
        state.changes += 1;
        self.receiver = prepared.receiver;
        self.folder = prepared.folder;
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Whether it is the same receiver, however it is spoken to.
    pub(super) fn sends_to(&self, receiver: &Receiver) -> bool {
        (self.receiver.kind, &self.receiver.address) == (receiver.kind, &receiver.address)
    }

    /// Whether nothing more will be sent.
    pub(super) fn is_over(&self) -> bool {
        self.shared.state().over
    }

    /// Adds a window.
    pub(super) fn push(&self, message: &Message) {
        let mut state = self.shared.state();
        state.queue.push(message);
        let complaint = state.queue.complaint();
        drop(state);
        self.shared.changed.notify_all();
        self.complain(complaint);
    }

    /// Says why windows cannot wait in the folder.
    fn complain(&self, why: Option<String>) {
        if let (Some(why), Some(folder)) = (why, &self.folder) {
            say(format_args!(
                "{}: no window can be kept in {}: {why}",
                self.receiver.address,
                folder.shown()
            ));
        }
    }

    /// Nothing more comes; what waits is sent until then.
    pub(super) fn end_by(&self, deadline: Instant) {
        self.shared.state().deadline = Some(deadline);
        self.shared.changed.notify_all();
    }

    /// Waits for the end, and says what became of all windows, if not all were taken or it is to
    /// be said anyway.
    pub(super) fn finish(self, verbose: bool) {
        let mut state = self.shared.state();
        while !state.over {
            let deadline = state.deadline.unwrap_or_else(Instant::now);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let unsent = state.queue.len() as u64;
        let dropped_before = state.queue.dropped;
        state.queue.close();
        let complaint = state.queue.complaint();
        let lost = state.queue.dropped - dropped_before;
        let counts = state.counts;
        let mut parts = vec![format!(
            "{} sent",
            plural(counts.taken, "window", "windows")
        )];
        let others = [
            (counts.refused, "refused"),
            (state.queue.dropped, "dropped"),
            (unsent - lost, "kept for the next time"),
        ];
        let is_well = others.iter().all(|(count, _)| *count == 0);
        parts.extend(
            others
                .into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{count} {what}")),
        );
        drop(state);
        self.complain(complaint);
        if verbose || !is_well {
            say(format_args!(
                "{}: {}",
                self.receiver.address,
                parts.join(", ")
            ));
        }
        // One that still waits for an answer ends with the process.
        if self.thread.is_finished() {
            let _ = self.thread.join();
        }
    }
}

/// The folder for windows of a service to a receiver: another service's may be another tenant's.
/// Headers may be secret, and change; only their names count.
fn spool_name(receiver: &Receiver, service: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    // Names of files are of 255 bytes at most.
    let cut = receiver.address.char_indices().nth(LONGEST_ADDRESS);
    let cut = cut.map_or(receiver.address.len(), |(at, _)| at);
    let (address, rest) = receiver.address.split_at(cut);
    let address: String = address.chars().map(plain).collect();
    let headers: Vec<_> = receiver.headers.keys().collect();
    let mut sum = Crc::new();
    sum.update(format!("{service:?}{headers:?}{rest}").as_bytes());
    format!("{}-{address}-{:08x}", receiver.kind.name(), sum.sum())
}

fn send_on(shared: &Shared) {
    let mut failures = 0u32;
    while let Some(attempt) = next(shared) {
        let connection = attempt.connection;
        let outcome = connection.send(&attempt.message, attempt.patience);
        let is_in_doubt = matches!(outcome, Outcome::InDoubt(..));
        let mut state = shared.state();
        match outcome {
            Outcome::Taken(said) => {
                state.queue.done(attempt.number);
                state.counts.taken += 1;
                let given_up = state.queue.settle_doubts();
                refuse(&mut state, &connection, &given_up);
                drop(state);
                if let Some(said) = said {
                    connection.say(format_args!("a window was taken in part: {said}"));
                }
                if std::mem::take(&mut failures) > 0 {
                    connection.say(format_args!("takes windows again"));
                }
            }
            Outcome::Refused(why) => {
                state.queue.done(attempt.number);
                refuse(&mut state, &connection, &[why]);
            }
            // Settings changed meanwhile: what the old ones met says nothing of the new.
            _ if state.changes != attempt.changes => {}
            Outcome::Later(why, asked) | Outcome::InDoubt(why, asked) => {
                if is_in_doubt {
                    state.queue.doubt(attempt.number, why.clone());
                }
                failures += 1;
                if failures == 1 {
                    let waits = "windows wait until it does, as many as there is room for";
                    connection.say(format_args!("takes nothing now: {why}; {waits}"));
                }
                // At the end it is tried once more, unless it has asked for rest.
                if state.deadline.is_some() && (failures > 1 || asked.is_some()) {
                    return;
                }
                rest(shared, state, pause(failures, asked));
            }
        }
    }
}

/// Counts windows that will never be taken, of which the first is told of.
fn refuse(state: &mut State, connection: &Connection, why: &[String]) {
    if state.counts.refused == 0
        && let Some(why) = why.first()
    {
        connection.say(format_args!("a window was refused, and is lost: {why}"));
    }
    state.counts.refused += why.len() as u64;
}

impl Connection {
    fn say(&self, what: std::fmt::Arguments<'_>) {
        say(format_args!("{}: {what}", self.address()));
    }
}

/// What is to be sent next, and by which settings.
struct Attempt {
    number: u64,
    message: Message,
    /// How long it may take.
    patience: Duration,
    connection: Arc<Connection>,
    /// `State::changes` as it begins.
    changes: u64,
}

/// The next attempt; `None` when it is over.
fn next(shared: &Shared) -> Option<Attempt> {
    let mut state = shared.state();
    loop {
        let deadline = state.deadline;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        if let Some((number, message)) = state.queue.first() {
            return Some(Attempt {
                number,
                message,
                patience: left.unwrap_or(Duration::MAX),
                connection: Arc::clone(&state.connection),
                changes: state.changes,
            });
        }
        if deadline.is_some() {
            return None;
        }
        let waited = shared.changed.wait(state);
        state = waited.unwrap_or_else(PoisonError::into_inner);
    }
}

/// Waits, or until it is to end or to go on in another way.
fn rest(shared: &Shared, mut state: MutexGuard<'_, State>, pause: Duration) {
    let until = Instant::now() + pause;
    let changes = state.changes;
    while state.deadline.is_none() && state.changes == changes {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let waited = shared.changed.wait_timeout(state, left);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// As long as was asked for; else longer from failure to failure, and not the same for all agents
/// that failed at once.
fn pause(failures: u32, asked: Option<Duration>) -> Duration {
    if let Some(asked) = asked {
        // Who always says "at once" would be asked a thousand times a second.
        let least = match failures > AT_ONCE {
            true => FIRST_PAUSE,
            false => Duration::ZERO,
        };
        return asked.clamp(least, LONGEST_ASKED);
    }
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(5));
    let random = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    doubled
        .min(LONGEST_PAUSE)
        .mul_f64(0.75 + random as f64 / 1024.0)
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
