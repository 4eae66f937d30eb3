//! The library of ours in a process that runs: it is brought in, its threads are armed from
//! outside, and it is taken away again.
//!
//! One thread of the process is held for some milliseconds ([`held`]): it maps memory and calls the
//! library, which is mapped and relocated from here ([`image`]); the loader and libc of the process
//! are not asked. Then each thread gets an event of ours ([`events`]), whose signal has it unwind
//! itself. At the end the events are closed, the thread's action is put back, and when no thread is
//! in the handler any more ([`departure`]) all memory is taken away.
//!
//! If this process is killed, the kernel closes the events with it; what stays in the other one
//! does nothing, and the next recording of it from inside takes it away.
//!
//! Not here: when this is done (`record/inside.rs`), and what the library does there
//! (`librsunwind/src/life/inside.rs`).

mod apart;
mod auxiliary;
mod child;
mod departure;
mod events;
mod functions;
mod held;
mod hold;
mod how_long;
mod image;
mod obstacles;
mod place;
mod refusal;
mod time_limit;
mod undisturbed;

pub(crate) use child::{Inheritance, disinherit};
pub(crate) use events::{Events, descriptor};
pub use how_long::HeldFor;
pub(crate) use obstacles::{all_that_is_seen, has_room};
pub use refusal::Refusal;

use crate::processes;
use hold::held_for;
use image::{Found, Image};
use place::Place;
use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// How long one is looked for.
const ENTERING: Duration = Duration::from_secs(2);

/// The library in a process.
#[derive(Debug)]
pub struct Inside {
    pid: u32,
    image: Image,
    base: u64,
    events: events::Events,
    /// How long a thread was held at the beginning.
    held: HeldFor,
    /// Keeps others from coming in.
    _lock: File,
}

/// A process that the library is to be brought into, of which all is known that can be: so little
/// as can be is left for while a thread of it is held.
#[derive(Debug)]
pub struct Prepared {
    pid: u32,
    image: Image,
    known: HashMap<String, u64>,
    lock: File,
    /// How long a thread of it that may be held is looked for.
    patience: Duration,
}

/// What is to be recorded.
#[derive(Clone, Debug)]
pub struct Settings {
    /// As the library reads them.
    pub text: String,
    /// Sampling period, ns.
    pub period_ns: u64,
}

/// What came of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Nothing is left; for so long a thread was held, at most.
    Gone(HeldFor),
    /// The process has ended, or runs another program.
    Over,
}

impl Prepared {
    /// Looks at a process, and takes away what a recording that was killed has left in it.
    ///
    /// # Errors
    /// [`Refusal`]; then the process is as before.
    pub fn new(pid: u32) -> Result<Self, Refusal> {
        obstacles::look(pid)?;
        let lock = lock(pid)?;
        let image = Image::read().ok_or(Refusal::Library)?;
        if let Some(base) = left_behind(pid)? {
            let left = Inside {
                pid,
                image,
                base,
                events: events::Events::default(),
                held: HeldFor::default(),
                _lock: lock,
            };
            left.leave()?;
            return Self::new(pid);
        }
        obstacles::own_handler(pid)?;
        let known = functions::find(pid, &image.wanted());
        Ok(Self {
            pid,
            image,
            known,
            lock,
            patience: ENTERING,
        })
    }

    /// The same, for whoever tries again if no thread of it may be held just now.
    pub fn at_once(self) -> Self {
        Self {
            patience: Duration::ZERO,
            ..self
        }
    }
}

impl Inside {
    /// Brings the library into a process. Nothing is sampled yet.
    ///
    /// # Errors
    /// [`Refusal`]; then the process is as before, or has the library, which does nothing.
    pub fn enter(prepared: Prepared, settings: &Settings) -> Result<Self, Refusal> {
        let Prepared {
            pid,
            image,
            known,
            lock,
            patience,
        } = prepared;
        // Of the program that it runs now: should it run another one, nothing is written to that.
        let memory = File::options().write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(|error| Refusal::Memory(error.to_string()))?;
        let (base, first) = held_for(pid, patience, |held| {
            obstacles::own_handler(pid)?;
            Ok((Place::map(held, &image)?, held.so_far()))
        })?;
        let place = Place {
            image: &image,
            base,
        };
        // Nobody needs to be held for that.
        let filled = place.fill(&memory, pid, &known, settings);
        let begun = filled.and_then(|()| {
            held_for(pid, ENTERING, |held| {
                obstacles::own_handler(pid)?;
                place.begin(held, pid)?;
                Ok(held.so_far())
            })
        });
        let held = match begun {
            Ok(second) => first.longer(second),
            Err(refusal) => {
                place.leave(pid)?;
                return Err(refusal);
            }
        };
        Ok(Self {
            pid,
            image,
            base,
            events: events::Events::new(settings.period_ns),
            held,
            _lock: lock,
        })
    }

    /// How long a thread of it was held at the beginning.
    #[must_use]
    pub const fn held(&self) -> HeldFor {
        self.held
    }

    /// Which process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Opens events on those of its threads that have none yet. Gives whether it could be told of
    /// all threads whether they may have one.
    ///
    /// # Errors
    /// [`Refusal`] if they are refused.
    pub fn arm(&mut self) -> Result<bool, Refusal> {
        self.events.open(self.pid)
    }

    /// The same of those of which it could not be told before.
    ///
    /// # Errors
    /// As [`Inside::arm`].
    pub fn arm_rest(&mut self) -> Result<bool, Refusal> {
        self.events.open_rest(self.pid)
    }

    /// The threads that have events.
    pub fn armed(&self) -> impl Iterator<Item = i32> + '_ {
        self.events.armed()
    }

    /// How many threads may have none.
    #[must_use]
    pub fn blocked(&self) -> usize {
        self.events.blocked()
    }

    /// Where the library is.
    #[must_use]
    pub const fn library(&self) -> Range<u64> {
        self.base..self.base + self.image.span
    }

    /// Whether the process still runs the program that the library was brought into.
    #[must_use]
    pub fn is_there(&self) -> bool {
        image::at(self.pid, self.base).is_some()
    }

    /// Ends sampling at once.
    pub fn disarm(&mut self) {
        self.events.close();
    }

    /// Takes the library away.
    ///
    /// # Errors
    /// [`Refusal`] if that cannot be; then what is left does nothing.
    pub fn leave(mut self) -> Result<Departure, Refusal> {
        self.disarm();
        if !self.is_there() {
            return Ok(Departure::Over);
        }
        let place = Place {
            image: &self.image,
            base: self.base,
        };
        place.leave(self.pid).map(Departure::Gone)
    }
}

/// Keeps other recordings from coming in, or taking the library away, until it is dropped; the
/// kernel drops it with this process. Two that stopped a thread each would set the action one after
/// the other. Only who may look into the process can have it.
fn lock(pid: u32) -> Result<File, Refusal> {
    let failed = |error: io::Error| Refusal::Memory(error.to_string());
    let file = File::open(format!("/proc/{pid}/maps")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            left_behind(pid)?; // says who it is, once it has come in
            Err(Refusal::Contested)
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Where a library of ours is in a process, if there is one: its mapping begins with what each of
/// its builds begins with.
fn find(pid: u32) -> Option<(u64, Found)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut anonymous = maps
        .lines()
        .filter(|line| line.split_ascii_whitespace().count() == 5);
    anonymous.find_map(|line| {
        let base = u64::from_str_radix(line.split('-').next()?, 16).ok()?;
        Some((base, image::at(pid, base)?))
    })
}

/// What a recording that was killed has left in a process.
fn left_behind(pid: u32) -> Result<Option<u64>, Refusal> {
    let Some((base, found)) = find(pid) else {
        return Ok(None);
    };
    let by = found.recorder;
    match found.is_ours {
        _ if processes::name(by, by).starts_with(b"rsunwind") => Err(Refusal::Taken(by)),
        true => Ok(Some(base)),
        false => Err(Refusal::OtherVersion),
    }
}
