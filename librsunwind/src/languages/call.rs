//! One call of a callback: what it reads, the frames that it gives, what it describes.
//!
//! # Safety
//! The handler's own stack holds the call, and one runs at a time. A cursor given to [`load`] and
//! its neighbours is the one that its caller was called with: the header asks for that.
#![allow(unsafe_code)]

use super::codes;
use super::layout::{Code, Cursor};
use super::reads::Reads;
use crate::described::{self, Key, Place};
use crate::error::Error;
use crate::thread::ThreadState;
use core::cell::Cell;
use engine::address::RuntimeAddress;
use engine::frame_buffer::FrameBuffer;
use engine::language::Steady;
use engine::wire;
use engine::wire::sample::{Frame, Method};

/// Frames that one call may give: nearly all that a walk may have.
const MOST_FRAMES: u32 = 65_000;

/// One call of a callback: what [`Cursor::walk`] points at.
pub(super) struct Call<'a> {
    pub(super) this: &'a ThreadState,
    pub(super) reads: &'a Reads,
    /// Whether the thread has the lock of its interpreter.
    pub(super) has_lock: &'a Cell<bool>,
    /// See [`engine::language::Answer::Steady`].
    pub(super) steady: &'a Cell<Option<Steady>>,
    /// When the walk began, where code without tables is a language's.
    pub(super) began_ns: u64,
    pub(super) index: usize,
    pub(super) name: &'a [u8],
    /// Null where no frames are wanted.
    pub(super) frames: *mut FrameBuffer<'a>,
    pub(super) pushed: Cell<u32>,
    /// What is to be described next.
    pub(super) unknown: Cell<Option<(Key, u64)>>,
    pub(super) is_unreadable: Cell<bool>,
    pub(super) is_too_much: Cell<bool>,
}

/// The call that a cursor was given to.
///
/// # Safety
/// See the module.
pub(super) unsafe fn call_of<'a>(cursor: *const Cursor) -> Result<&'a Call<'a>, Error> {
    // SAFETY: the caller's promise.
    let cursor = unsafe { cursor.as_ref() }.ok_or(Error::Null)?;
    // SAFETY: as above; the callback runs, so the call is there.
    unsafe { cursor.walk.cast::<Call<'a>>().as_ref() }.ok_or(Error::Null)
}

impl Call<'_> {
    #[inline]
    pub(super) fn noted<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        match result {
            Err(Error::Budget) => self.is_too_much.set(true),
            Err(Error::Unreadable) => self.is_unreadable.set(true),
            _ => {}
        }
        result
    }

    /// What is to be described: for the last time, or not.
    fn unknown(&self, is_last: bool) -> Result<(Key, u64), Error> {
        let unknown = self.unknown.get().ok_or(Error::Null)?;
        if is_last {
            self.unknown.set(None);
        }
        Ok(unknown)
    }

    /// As `rsunwind_frame`; `false` if its code object is to be described now.
    ///
    /// # Errors
    /// See [`frame`].
    pub(super) fn frame(&self, id: u64, check: u64, position: u32) -> Result<bool, Error> {
        self.frame_of(Key::new(self.index, id, check), position)
    }

    /// The place of code objects whose ids are addresses, of which few have had the same, on its
    /// way from memory: for [`Call::frame_of`].
    #[inline]
    pub(super) fn place_of(&self, id: u64) -> Place {
        let place = Place::of(self.index, id);
        place.fetch();
        place
    }

    /// The same as [`Call::frame`] if the code object was described; else there is no frame yet.
    pub(super) fn known_frame(&self, id: u64, check: u64, position: u32) -> Result<bool, Error> {
        let Some(number) = described::find(Key::new(self.index, id, check)) else {
            return Ok(false);
        };
        self.noted(self.push(number, position)).map(|()| true)
    }

    /// The same as [`Call::frame`] of a known key.
    pub(super) fn frame_of(&self, key: Key, position: u32) -> Result<bool, Error> {
        let known = described::find(key);
        let number = known.unwrap_or_else(described::new_number);
        self.noted(self.push(number, position))?;
        self.unknown.set(known.is_none().then_some((key, number)));
        Ok(known.is_some())
    }

    /// Describes the code object of the frame just added, as it is written: but for its
    /// number, time and language. One that is not whole is asked for again at the next sample, if
    /// [`Call::more_lines`] does not complete it.
    ///
    /// # Errors
    /// [`Error::Null`] if none is to be described.
    pub(super) fn describe(&self, code: wire::code::Code<'_>, is_whole: bool) -> Result<(), Error> {
        let (key, number) = self.unknown(is_whole)?;
        let language = self.name;
        let code = wire::code::Code { language, ..code };
        codes::write(self.this, is_whole.then_some(key), number, code);
        Ok(())
    }

    /// More of the line table of the code object that was described last, but for its number.
    ///
    /// # Errors
    /// As above; [`Error::Memory`] if it could not be written.
    pub(super) fn more_lines(
        &self,
        lines: wire::code::MoreLines<'_>,
        is_last: bool,
    ) -> Result<(), Error> {
        let (key, number) = self.unknown(is_last)?;
        let lines = wire::code::MoreLines { number, ..lines };
        match codes::write_lines(self.this, is_last.then_some(key), lines) {
            true => Ok(()),
            false => Err(Error::Memory),
        }
    }

    /// A number that stays the same for what the language knows by that id and check: found once,
    /// and as long as it is remembered not again.
    pub(super) fn number(
        &self,
        id: u64,
        check: u64,
        find: impl FnOnce() -> Option<u64>,
    ) -> Option<u64> {
        let key = Key::new(described::NUMBERS.wrapping_add(self.index), id, check);
        described::find(key).or_else(|| {
            let found = find().filter(|number| *number != 0)?;
            described::insert(key, found);
            Some(found)
        })
    }

    fn push(&self, number: u64, position: u32) -> Result<(), Error> {
        // SAFETY: the walk's, which waits for this call.
        let frames = unsafe { self.frames.as_mut() }.ok_or(Error::Null)?;
        let pushed = self.pushed.get();
        let frame = Frame {
            pc: RuntimeAddress(number),
            method: Method::Language,
            position,
        };
        if pushed >= MOST_FRAMES {
            return Err(Error::Budget);
        }
        // The walk is as long as any may be, for which the language cannot be blamed.
        if !frames.push_frame(frame) {
            return Err(Error::Full);
        }
        self.pushed.set(pushed.saturating_add(1));
        Ok(())
    }
}

/// `rsunwind_load`: the word at an address.
///
/// # Signal safety
/// As all of these, for callbacks only, which run in the handler.
///
/// # Errors
/// [`Error::Unreadable`], [`Error::Budget`].
///
/// # Safety
/// See the module.
pub unsafe fn load(cursor: *const Cursor, address: u64) -> Result<u64, Error> {
    // SAFETY: the caller's promise.
    let call = unsafe { call_of(cursor) }?;
    call.noted(call.reads.load(address))
}

/// `rsunwind_copy`: bytes from an address.
///
/// # Errors
/// As above.
///
/// # Safety
/// See the module; `to` has room for so many.
pub unsafe fn copy(
    cursor: *const Cursor,
    address: u64,
    to: *mut u8,
    length: usize,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let call = unsafe { call_of(cursor) }?;
    if to.is_null() {
        return Err(Error::Null);
    }
    // SAFETY: the caller's promise.
    call.noted(unsafe { call.reads.copy(address, to, length) })
}

/// `rsunwind_frame`: adds a frame; `false` if its code object is to be described.
///
/// # Errors
/// [`Error::Budget`]; [`Error::Full`] where the walk is as long as any may be; [`Error::Null`]
/// where no frames are asked for.
///
/// # Safety
/// See the module.
pub unsafe fn frame(
    cursor: *const Cursor,
    id: u64,
    check: u64,
    position: u32,
) -> Result<bool, Error> {
    // SAFETY: the caller's promise.
    let call = unsafe { call_of(cursor) }?;
    call.frame(id, check, position)
}

/// `rsunwind_describe`: describes the code object of the frame just added.
///
/// # Errors
/// [`Error::Null`] if none is to be described.
///
/// # Safety
/// See the module; what the description points at can be read.
pub unsafe fn describe(cursor: *const Cursor, code: *const Code) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let call = unsafe { call_of(cursor) }?;
    // SAFETY: likewise.
    let described = unsafe { codes::look_at(code) }?;
    let (key, number) = call.unknown(true)?;
    codes::describe(call.this, key, number, call.name, &described);
    Ok(())
}
