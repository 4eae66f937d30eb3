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
mod departure;
mod events;
mod functions;
mod held;
mod image;
mod missed;
mod obstacles;
mod refusal;
mod time_limit;
mod undisturbed;

pub(crate) use events::{Events, descriptor};
pub use missed::Lacks;
pub use refusal::Refusal;

use crate::clock;
use crate::processes;
use held::Held;
use image::{Found, Image, PAGE};
use nix::errno::Errno;
use nix::libc;
use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

const BEGIN: &str = "rsunwind_inside_begin";
const END: &str = "rsunwind_inside_end";
const UNMAP: &str = "rsunwind_inside_unmap";
const CALLER: &str = "rsunwind_inside_call";
/// What the collector has a thread call.
#[cfg(test)]
const FUNCTIONS: [&str; 4] = [BEGIN, END, UNMAP, CALLER];
/// For the calls of the held thread: what they are told, and a stack.
const SCRATCH: u64 = 256 << 10;
const TOLD: u64 = 4096;
/// From one look for a thread that may be stopped to the next.
const BETWEEN: Duration = Duration::from_millis(5);
/// How long one is looked for.
const ENTERING: Duration = Duration::from_secs(2);
const LEAVING: Duration = Duration::from_secs(10);

const AT_ENTRY: u64 = 9;
const AT_EXECFN: u64 = 31;
const AT_SYSINFO_EHDR: u64 = 33;

/// The library in a process.
#[derive(Debug)]
pub struct Inside {
    pid: u32,
    image: Image,
    base: u64,
    events: events::Events,
    missed: missed::Missed,
    /// How long a thread was held at the beginning.
    held: Duration,
    /// Keeps others from coming in.
    _lock: File,
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
    Gone(Duration),
    /// The process has ended, or runs another program.
    Over,
}

impl Inside {
    /// Whether nothing that can be seen without touching the process forbids it.
    #[must_use]
    pub fn is_possible(pid: u32) -> bool {
        let seen = obstacles::look(pid).and_then(|()| obstacles::own_handler(pid));
        seen.is_ok() && obstacles::ignored_trap(pid).is_ok()
    }

    /// Brings the library into a process. Nothing is sampled yet.
    ///
    /// # Errors
    /// [`Refusal`]; then the process is as before, or has the library, which does nothing.
    pub fn enter(pid: u32, settings: &Settings) -> Result<Self, Refusal> {
        obstacles::look(pid)?;
        let lock = lock(pid)?;
        let image = Image::read().ok_or(Refusal::Library)?;
        if let Some(base) = left_behind(pid)? {
            let left = Self {
                pid,
                image,
                base,
                events: events::Events::default(),
                missed: missed::Missed::begin(pid, 0),
                held: Duration::ZERO,
                _lock: lock,
            };
            left.leave()?;
            return Self::enter(pid, settings);
        }
        obstacles::own_handler(pid)?;
        let known = functions::find(pid, &image.wanted());
        let began_ns = clock::monotonic_ns();
        let entered = held_for(pid, ENTERING, |held| {
            obstacles::own_handler(pid)?;
            let place = Place::map(held, &image, &known)?;
            place.begin(held, pid, settings)?;
            Ok((place.base, held.since.elapsed()))
        });
        let (base, held) = entered?;
        Ok(Self {
            pid,
            image,
            base,
            events: events::Events::new(settings.period_ns),
            missed: missed::Missed::begin(pid, began_ns),
            held,
            _lock: lock,
        })
    }

    /// How long a thread of it was held at the beginning.
    #[must_use]
    pub const fn held(&self) -> Duration {
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
        self.missed.look();
        self.events.open(self.pid)
    }

    /// The same of those of which it could not be told before.
    ///
    /// # Errors
    /// As [`Inside::arm`].
    pub fn arm_rest(&mut self) -> Result<bool, Refusal> {
        self.events.open_rest(self.pid)
    }

    /// How many threads have events.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.events.counts().0
    }

    /// Whether the process still runs the program that the library was brought into.
    #[must_use]
    pub fn is_there(&self) -> bool {
        image::at(self.pid, self.base).is_some()
    }

    /// Ends sampling at once. Gives what has no samples.
    pub fn disarm(&mut self) -> Lacks {
        let blocked = self.events.counts().1;
        self.missed.end();
        self.events.close();
        let is_another = !self.is_there();
        self.missed
            .lacks(self.events.counted_ns(), blocked, is_another)
    }

    /// Takes the library away.
    ///
    /// # Errors
    /// [`Refusal`] if that cannot be; then what is left does nothing.
    pub fn leave(mut self) -> Result<Departure, Refusal> {
        let _ = self.disarm();
        if !self.is_there() {
            return Ok(Departure::Over);
        }
        let place = Place {
            image: &self.image,
            base: self.base,
        };
        let (result, first) = held_for(self.pid, LEAVING, |held| {
            Ok((place.run(held, END, 0)?, held.since.elapsed()))
        })?;
        if result != 0 {
            return Err(Refusal::of_library(result));
        }
        departure::wait(self.pid, self.base..self.base + self.image.span)?;
        let second = held_for(self.pid, LEAVING, |held| {
            place.run(held, UNMAP, 0)?;
            place.unmap(held)?;
            Ok(held.since.elapsed())
        })?;
        Ok(Departure::Gone(first.max(second)))
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

/// Has a thread of the process do something. A process of its own sees to that ([`apart`]): should
/// anything go wrong, or this one be killed, the thread goes on as it was in any case.
fn held_for<T>(
    pid: u32,
    patience: Duration,
    work: impl FnOnce(&Held) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let deadline = Instant::now() + patience;
    let mut work = Some(work);
    loop {
        let done = apart::apart(|| {
            let held = Held::stop(pid)?;
            let work = work.take().ok_or(Refusal::Library)?;
            let done = work(&held);
            held.release()?;
            done
        });
        let done = done.map_err(Refusal::Ptrace)?;
        let done = done.unwrap_or(Err(Refusal::Library));
        let refusal = match done {
            // It was killed meanwhile, or another thread of it has called exec.
            Err(Refusal::Ptrace(Errno::ESRCH)) if work.is_none() => return Err(Refusal::Ended),
            // The kernel may not have let go yet of what another process of ours had.
            Err(Refusal::Ptrace(errno @ (Errno::EAGAIN | Errno::EPERM | Errno::ESRCH))) => {
                Refusal::Ptrace(errno)
            }
            Err(Refusal::NobodyToStop) => Refusal::NobodyToStop,
            other => return other,
        };
        if work.is_none() || Instant::now() > deadline {
            return Err(refusal);
        }
        thread::sleep(BETWEEN);
    }
}

/// The library at its place in a process: one mapping, with what the held thread is told and its
/// stack behind the image.
struct Place<'a> {
    image: &'a Image,
    base: u64,
}

impl<'a> Place<'a> {
    /// Maps it. In few steps: at each the held thread waits for us.
    fn map(held: &Held, image: &'a Image, known: &HashMap<String, u64>) -> Result<Self, Refusal> {
        let size = image.span + SCRATCH;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
        let base = held.call(libc::SYS_mmap, [0, size, protection, flags, u64::MAX, 0])?;
        let place = Self { image, base };
        let filled = place.fill(held, known);
        filled.or_else(|refusal| place.unmap(held).and(Err(refusal)))?;
        Ok(place)
    }

    fn fill(&self, held: &Held, known: &HashMap<String, u64>) -> Result<(), Refusal> {
        let bytes = self
            .image
            .at(self.base, |name| known.get(name).copied().unwrap_or(0));
        held.write(self.base, &bytes.ok_or(Refusal::Library)?)?;
        // What may be written stays so, and never may both be.
        for segment in self
            .image
            .segments
            .iter()
            .filter(|segment| !segment.writable)
        {
            let protection = match segment.executable {
                true => libc::PROT_READ | libc::PROT_EXEC,
                false => libc::PROT_READ,
            };
            let start = self.base + segment.range.start;
            let length = segment.range.end - segment.range.start;
            let arguments = [start, length, protection as u64, 0, 0, 0];
            held.call(libc::SYS_mprotect, arguments)?;
        }
        Ok(())
    }

    fn begin(&self, held: &Held, pid: u32, settings: &Settings) -> Result<(), Refusal> {
        let told = self.base + self.image.span;
        let behind = told + TOLD / 2;
        let text = settings.text.as_bytes();
        // struct Arrival of `inside/src/lib.rs`, and the text behind it.
        let words = [
            behind,
            text.len() as u64,
            auxiliary(pid, AT_SYSINFO_EHDR).unwrap_or(0),
            auxiliary(pid, AT_ENTRY).unwrap_or(0),
            auxiliary(pid, AT_EXECFN).unwrap_or(0),
            i64::from(events::descriptor()).cast_unsigned(),
        ];
        if text.len() as u64 > TOLD / 2 {
            return self.unmap(held).and(Err(Refusal::Library));
        }
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let written = held.write(told, &words);
        let written = written.and_then(|()| held.write(behind, text));
        written.or_else(|refusal| self.unmap(held).and(Err(refusal)))?;
        let refusal = match self.run(held, BEGIN, told) {
            Ok(0) => return Ok(()),
            Ok(result) => Refusal::of_library(result),
            Err(refusal) => refusal,
        };
        // No event is open yet, so that no thread is in it. As long as the handler may stand, its
        // code must, which does nothing; the next that comes takes it away.
        if matches!(self.run(held, END, 0), Ok(0)) {
            self.run(held, UNMAP, 0)?;
            self.unmap(held)?;
        }
        Err(refusal)
    }

    fn run(&self, held: &Held, name: &str, argument: u64) -> Result<u64, Refusal> {
        let [caller, function] = [CALLER, name].map(|name| self.image.function(name));
        let (Some(caller), Some(function)) = (caller, function) else {
            return Err(Refusal::Library);
        };
        let stack = self.base + self.image.span + SCRATCH - PAGE;
        held.run(self.base + caller, self.base + function, argument, stack)
    }

    fn unmap(&self, held: &Held) -> Result<(), Refusal> {
        let arguments = [self.base, self.image.span + SCRATCH, 0, 0, 0, 0];
        held.call(libc::SYS_munmap, arguments).map(drop)
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

/// What the kernel told the program at its start.
fn auxiliary(pid: u32, kind: u64) -> Option<u64> {
    let bytes = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let (words, _) = bytes.as_chunks::<16>();
    words.iter().find_map(|pair| {
        let (key, value) = pair.split_at(8);
        let is = u64::from_le_bytes(key.try_into().ok()?) == kind;
        is.then(|| u64::from_le_bytes(value.try_into().unwrap_or_default()))
    })
}
