//! The library at its place in a process: mapped, filled, begun, ended and taken away again, in as
//! few steps of a held thread as can be, for at each of them it waits for us. What needs nobody to
//! be held is done while nobody is.

use super::auxiliary::{AT_ENTRY, AT_EXECFN, AT_SYSINFO_EHDR, auxiliary};
use super::departure;
use super::events;
use super::held::Held;
use super::hold::held_for;
use super::image::{self, BEGIN, CALLER, END, Image, PAGE, UNMAP};
use super::{HeldFor, Refusal, Settings};
use nix::libc;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// For the calls of the held thread: what they are told, and a stack.
const SCRATCH: u64 = 256 << 10;
const TOLD: u64 = 4096;
/// How long a thread that may be stopped is looked for at the end.
const LEAVING: Duration = Duration::from_secs(10);

/// The library at its place in a process: one mapping, with what the held thread is told and its
/// stack behind the image.
pub(super) struct Place<'a> {
    pub(super) image: &'a Image,
    pub(super) base: u64,
}

impl<'a> Place<'a> {
    /// Maps memory for it, which is known by how it begins from then on. Gives where.
    pub(super) fn map(held: &Held, image: &Image) -> Result<u64, Refusal> {
        let size = image.span + SCRATCH;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
        let base = held.call(libc::SYS_mmap, [0, size, protection, flags, u64::MAX, 0])?;
        let written = image.head().ok_or(Refusal::Library);
        let written = written.and_then(|head| held.write(base, &head));
        let place = Place { image, base };
        written.or_else(|refusal| place.unmap(held).and(Err(refusal)))?;
        Ok(base)
    }

    pub(super) fn fill(
        &self,
        memory: &File,
        pid: u32,
        known: &HashMap<String, u64>,
        settings: &Settings,
    ) -> Result<(), Refusal> {
        let known = |name: &str| known.get(name).copied().unwrap_or(0);
        let bytes = self.image.at(self.base, known).ok_or(Refusal::Library)?;
        let told = self.told(pid, settings)?;
        let written = memory.write_all_at(&bytes, self.base);
        let written =
            written.and_then(|()| memory.write_all_at(&told, self.base + self.image.span));
        written.map_err(|error| Refusal::Memory(error.to_string()))
    }

    /// What may be written stays so, and never may both be.
    fn protect(&self, held: &Held) -> Result<(), Refusal> {
        // Constants can be run as well where they lie beside the code: for each further step the
        // held thread would have to wait for a processor.
        for range in self.image.constant() {
            let protection = libc::PROT_READ | libc::PROT_EXEC;
            let (start, length) = (self.base + range.start, range.end - range.start);
            let arguments = [start, length, protection as u64, 0, 0, 0];
            held.call(libc::SYS_mprotect, arguments)?;
        }
        Ok(())
    }

    /// Takes it away, if it is still there. Gives for how long a thread was held, at most.
    pub(super) fn leave(&self, pid: u32) -> Result<HeldFor, Refusal> {
        if image::at(pid, self.base).is_none() {
            return Ok(HeldFor::default());
        }
        let mut first = HeldFor::default();
        if self.image.has_begun(pid, self.base) {
            let (result, held) = held_for(pid, LEAVING, |held| {
                self.is_in(pid)?;
                Ok((self.run(held, END, 0)?, held.so_far()))
            })?;
            if result != 0 {
                return Err(Refusal::of_library(result));
            }
            first = held;
            departure::wait(pid, self.base..self.base + self.image.span)?;
        }
        let second = held_for(pid, LEAVING, |held| {
            self.is_in(pid)?;
            if self.image.has_begun(pid, self.base) {
                self.run(held, UNMAP, 0)?;
            }
            self.unmap(held)?;
            Ok(held.so_far())
        })?;
        Ok(first.longer(second))
    }

    /// Takes it away from a fork child, of which no thread was ever in the handler: all at once.
    pub(super) fn leave_child(&self, pid: u32, patience: Duration) -> Result<(), Refusal> {
        held_for(pid, patience, |held| {
            self.is_in(pid)?;
            if self.image.has_begun(pid, self.base) {
                match self.run(held, END, 0)? {
                    0 => self.run(held, UNMAP, 0)?,
                    result => return Err(Refusal::of_library(result)),
                };
            }
            self.unmap(held)
        })
    }

    /// What the library is told at its beginning: `struct Arrival` of `inside/src/lib.rs`, and the
    /// settings behind it.
    fn told(&self, pid: u32, settings: &Settings) -> Result<Vec<u8>, Refusal> {
        let text = settings.text.as_bytes();
        let words = [
            self.base + self.image.span + TOLD / 2,
            text.len() as u64,
            auxiliary(pid, AT_SYSINFO_EHDR).unwrap_or(0),
            auxiliary(pid, AT_ENTRY).unwrap_or(0),
            auxiliary(pid, AT_EXECFN).unwrap_or(0),
            i64::from(events::descriptor()).cast_unsigned(),
        ];
        let mut told: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        told.resize(TOLD as usize / 2, 0);
        told.extend(text);
        (told.len() <= TOLD as usize)
            .then_some(told)
            .ok_or(Refusal::Library)
    }

    /// Has it begin.
    pub(super) fn begin(&self, held: &Held, pid: u32) -> Result<(), Refusal> {
        self.is_in(pid)?;
        self.protect(held)?;
        let refusal = match self.run(held, BEGIN, self.base + self.image.span) {
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

    /// Whether the program that the held thread runs is the one that it was brought into.
    fn is_in(&self, pid: u32) -> Result<(), Refusal> {
        image::at(pid, self.base).map(drop).ok_or(Refusal::Ended)
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
