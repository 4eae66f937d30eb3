//! Languages that files describe themselves, in a note: an interpreter carries its hooks, which
//! cost nothing and link to nothing, and a walk that meets the interpreter's code registers them.
//!
//! They are taken back while libraries are closed, since one may be the interpreter's, or bring it
//! down with it; the next walk afterwards registers what is still there.
//!
//! # Safety
//! A description lies in a file that is mapped, and its callbacks in the same file: it is in use
//! where a walk has met its code, and not unmapped before [`let_go`].
#![allow(unsafe_code)]

use super::layout::Language;
use super::lock::Locked;
use super::table;
use crate::clock;
use crate::described;
use crate::error::Error;
use crate::modules::notes::{self, Noted};
use crate::modules::path_of;
use crate::text::Text;
use crate::thread::ThreadState;
use core::ops::Range;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;
use engine::address::RuntimeAddress;
use engine::memory::is_readable;
use engine::notes::{BadNote, LANGUAGE_VERSION};
use engine::wire::event::EventKind;

/// Why a language that a file describes is left out.
enum Refusal {
    Note(BadNote),
    /// The description has another size.
    Size(u64),
    /// Something that it points at is not in the file, or cannot be read.
    Outside(&'static [u8]),
    /// A name that is not allowed, or no callback.
    Wrong(Error),
    TooMany,
}

/// Whether languages have been met that were not known before this walk, and are registered now.
///
/// # Signal safety
/// A load; raw system calls where it is so.
#[inline]
pub(super) fn have_come(this: &ThreadState) -> bool {
    notes::any_waiting() && take_in(this)
}

#[cold]
fn take_in(this: &ThreadState) -> bool {
    if described::prepare_in_walk().is_none() {
        return false;
    }
    let Some(locked) = Locked::unless_held() else {
        return false;
    };
    let mut any = false;
    let now_ns = clock::monotonic_ns();
    for module in notes::waiting() {
        if module.is_in_doubt(now_ns) {
            module.wait_again();
            continue;
        }
        let (is_new, is_right) = take_in_one(this, &locked, module);
        any |= is_new;
        match is_right || module.was_doubted() {
            true => module.taken_in(),
            false => module.doubt(now_ns),
        }
    }
    any
}

/// Whether there are new languages, and nothing is wrong with any.
fn take_in_one(this: &ThreadState, locked: &Locked, module: &Noted) -> (bool, bool) {
    let range = module.range();
    let is_free = |place: &&AtomicI32| place.load(Relaxed) == 0;
    let mut places = module.languages.iter().filter(is_free);
    let (mut any, mut is_right) = (false, true);
    for described in notes::languages(range.clone(), size_of::<Language>() as u64) {
        let registered = described
            .map_err(Refusal::Note)
            .and_then(|at| look_at(at, &range))
            .and_then(|language| {
                if table::has(&language) {
                    return Ok(false); // the interpreter has registered it itself
                }
                let place = places.next().ok_or(Refusal::TooMany)?;
                // SAFETY: looked at above: the name ends, and the rest is as the header asks.
                let number = unsafe { table::add_locked(locked, &language, 0) };
                place.store(number.map_err(Refusal::Wrong)?, Relaxed);
                Ok(true)
            });
        match registered {
            Ok(is_new) => any |= is_new,
            Err(refusal) => {
                is_right = false;
                if module.was_doubted() && !module.was_judged.load(Relaxed) {
                    say(this, &range, &refusal);
                }
            }
        }
    }
    if !is_right && module.was_doubted() {
        module.was_judged.store(true, Relaxed);
    }
    (any, is_right)
}

/// Whether that can be read to the end: two pages at most.
fn can_be_read(at: u64, size: u64) -> bool {
    let last = at.saturating_add(size.saturating_sub(1)) & !7;
    is_readable(at & !7) && is_readable(last)
}

/// The description at an address in the file, if all that it points at is in the file, too.
fn look_at(at: u64, module: &Range<u64>) -> Result<Language, Refusal> {
    let size = size_of::<Language>() as u64;
    if !can_be_read(at, size) {
        return Err(Refusal::Outside(b"its description"));
    }
    // SAFETY: it can be read, and is plain numbers; aligned, as the note's reader has seen to.
    let [own, name, callback, entry, _] =
        unsafe { core::ptr::with_exposed_provenance::<[u64; 5]>(at as usize).read() };
    if own != size {
        return Err(Refusal::Size(own));
    }
    if !module.contains(&name) || !name_ends(name, module.end) {
        return Err(Refusal::Outside(b"its name"));
    }
    if !module.contains(&callback) {
        return Err(Refusal::Outside(b"its callback"));
    }
    if !module.contains(&entry) {
        return Err(Refusal::Outside(b"its entry callback"));
    }
    // SAFETY: as above; the callback is there, and the file vouches for what its code is.
    Ok(unsafe { core::ptr::with_exposed_provenance::<Language>(at as usize).read() })
}

/// Whether a zero byte ends the name in time.
fn name_ends(name: u64, end: u64) -> bool {
    let length = (table::NAME as u64).min(end.saturating_sub(name));
    let byte = |at: u64| {
        // SAFETY: the page was found readable.
        unsafe { core::ptr::with_exposed_provenance::<u8>(at as usize).read() }
    };
    (name..name.saturating_add(length))
        .take_while(|at| can_be_read(*at, 1))
        .any(|at| byte(at) == 0)
}

#[cold]
fn say(this: &ThreadState, module: &Range<u64>, refusal: &Refusal) {
    let mut buffer = [0; 1024];
    let text = Text::<512>::new()
        .then(b"a language that ")
        .then(path_of(RuntimeAddress(module.start), &mut buffer))
        .then(b" describes is left out: ");
    let text = match refusal {
        Refusal::Note(BadNote::Truncated) => text.then(b"its note is cut short"),
        Refusal::Note(BadNote::Version(version)) => text
            .then(b"its note is of version ")
            .decimal(u64::from(*version))
            .then(b", this is version ")
            .decimal(u64::from(LANGUAGE_VERSION)),
        Refusal::Note(BadNote::Outside) => text.then(b"its description is not in the file"),
        Refusal::Size(size) => text
            .then(b"its description has ")
            .decimal(*size)
            .then(b" bytes instead of ")
            .decimal(size_of::<Language>() as u64),
        Refusal::Outside(what) => text.then(what).then(b" is not in the file"),
        Refusal::Wrong(error) => text.then(error.words().to_bytes()),
        Refusal::TooMany => text
            .then(b"a file may describe ")
            .decimal(notes::LANGUAGES as u64),
    };
    this.event(EventKind::Note, module.start, text.bytes());
}

/// Takes all of them back before a library is closed; `false` if a callback does not return, and
/// the library must stay.
pub fn let_go() -> bool {
    for module in notes::taken_in() {
        for place in &module.languages {
            let number = place.load(Relaxed);
            match table::remove(number) {
                Ok(()) | Err(Error::NoClient) => place.store(0, Relaxed),
                Err(_) => return false,
            }
        }
        module.wait_again();
    }
    true
}
