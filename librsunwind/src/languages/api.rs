//! Languages of Rust programs: the contract of `include/rsunwind.h` as a trait. A process has one
//! runtime: that of the preloaded or linked library if there is one, else the one that this crate
//! brings; registrations and what callbacks call go to it.
//!
//! # Safety
//! The library's functions have the signatures of its header. A cursor is used by the callback that
//! it was given to, while that runs.
#![allow(unsafe_code)]

use super::layout::{self, Code, Counts, Line, STATE, answer};
use super::lock::Locked;
use super::{call, table};
use crate::described;
use crate::error::Error;
use crate::weak_address;
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::ptr;
use engine::registers::Registers;

/// An interpreter or a JIT that knows frames which no unwind table has.
///
/// # Safety
/// Both functions run in signal handlers, on any thread, at any instruction of the program: they
/// allocate nothing, take no locks, do not panic, and read what may be half changed through the
/// cursor alone, whose functions fail instead of faulting. See the header.
pub unsafe trait Language: Sync {
    /// What its frames are shown as: up to 31 printing characters but blanks and `;[]`.
    const NAME: &'static CStr;
    /// Whether it is asked for entries.
    const HAS_ENTRIES: bool = false;

    /// The stack address of the thread's innermost entry; `None` if there is none. The cursor is
    /// the leaf's.
    fn entry(&self, cursor: &mut Cursor<'_>) -> Option<u64> {
        let _ = cursor;
        None
    }

    /// What it says of a frame with its code, or one that reaches over its entry.
    fn unwind(&self, cursor: &mut Cursor<'_>) -> Answer;
}

/// What a language says of a frame. Its own frames are given before, by [`Cursor::frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is not the language's.
    NotMine,
    /// It is to be unwound natively.
    Native,
    /// The caller has this pc and these registers, of which those are known whose bits are set (by
    /// DWARF number).
    Caller(Registers, u32),
    /// There are no more frames.
    End,
    /// The register of that DWARF number has to be known; to be said before any frame is given.
    Need(u8),
}

/// A native frame, as a language is shown it.
#[derive(Debug)]
pub struct Cursor<'a>(&'a mut layout::Cursor);

fn function<T>(address: usize) -> Option<T> {
    // SAFETY: `T` is the type of the function whose address it is.
    (address != 0).then(|| unsafe { core::mem::transmute_copy::<usize, T>(&address) })
}

fn checked(result: c_int) -> Result<c_int, Error> {
    if result >= 0 {
        return Ok(result);
    }
    Err(Error::from_number(result.wrapping_neg()).unwrap_or(Error::Memory))
}

impl Cursor<'_> {
    /// The register of that DWARF number, if it is known.
    #[must_use]
    pub fn register(&self, number: u8) -> Option<u64> {
        let value = self.0.registers.get(usize::from(number))?;
        (self.0.known >> number & 1 != 0).then_some(*value)
    }

    /// Where the frame stands: the interrupted instruction if it is exact, else where a call
    /// returns to.
    #[must_use]
    pub fn pc(&self) -> u64 {
        self.0.pc
    }

    /// Of [`layout::flags`].
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.0.flags
    }

    /// The frame's CFA, if the tables have said so.
    #[must_use]
    pub fn cfa(&self) -> Option<u64> {
        Some(self.0.cfa).filter(|cfa| *cfa != 0)
    }

    /// The entry that the frame reaches over.
    #[must_use]
    pub fn entry(&self) -> u64 {
        self.0.entry
    }

    /// Names the next outer entry; of a frame that is asked about by its code, one in it, to be
    /// asked about it again when its CFA is known.
    pub fn set_entry(&mut self, entry: Option<u64>) {
        self.0.entry = entry.unwrap_or(0);
    }

    /// The thread's own stack, as far as it was seen; empty on another one.
    #[must_use]
    pub fn stack(&self) -> core::ops::Range<u64> {
        self.0.stack_low..self.0.stack_high
    }

    /// What was interrupted.
    #[must_use]
    pub fn interrupted(&self) -> Registers {
        // SAFETY: the walk's, which waits for the callback.
        unsafe { *self.0.interrupted }
    }

    /// The language's own state, zeroed when the walk begins, and when it begins again.
    pub fn state(&mut self) -> &mut [u64; STATE / 8] {
        // SAFETY: so many bytes, aligned, for this language in this walk alone.
        unsafe { &mut *self.0.state.cast() }
    }

    /// The word at an address, whose page is probed once a walk: for memory that stays mapped while
    /// this thread is in the handler.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Budget`].
    pub fn load(&self, address: u64) -> Result<u64, Error> {
        let mut word = 0;
        // SAFETY: the callback runs; the place is ours.
        checked(unsafe { (self.functions().load)(self.0, address, &raw mut word) })?;
        Ok(word)
    }

    /// Copies bytes of memory that other threads may unmap at this moment.
    ///
    /// # Errors
    /// As above.
    pub fn copy(&self, address: u64, to: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the callback runs; there is so much room.
        let result = unsafe { (self.functions().copy)(self.0, address, to.as_mut_ptr(), to.len()) };
        checked(result).map(|_| ())
    }

    /// Adds a frame, innermost first, and describes its code object if that is new: see
    /// `rsunwind_frame` and `rsunwind_describe`.
    ///
    /// # Errors
    /// [`Error::Budget`]; [`Error::Full`] where the walk is as long as any may be.
    pub fn frame<'d>(
        &self,
        id: u64,
        check: u64,
        position: u32,
        describe: impl FnOnce() -> Description<'d>,
    ) -> Result<(), Error> {
        // SAFETY: the callback runs.
        if checked(unsafe { (self.functions().frame)(self.0, id, check, position) })? == 0 {
            return Ok(());
        }
        let code = describe().code();
        // SAFETY: as above; the description is made of slices.
        checked(unsafe { (self.functions().describe)(self.0, &raw const code) }).map(|_| ())
    }

    /// Of the runtime that asks, whichever this crate is linked into.
    fn functions(&self) -> &layout::CursorFunctions {
        // SAFETY: the runtime's, for good.
        unsafe { &*self.0.functions }
    }
}

/// For languages that are part of the runtime itself, which no other stands in front of.
impl<'c> Cursor<'c> {
    /// The call that is under way, which does what others have functions for.
    pub(super) fn own_call(&self) -> Option<&'c call::Call<'c>> {
        // SAFETY: the callback runs, and the call is there until it returns.
        unsafe { call::call_of(self.0) }.ok()
    }
}

/// What a code object is shown as.
#[derive(Clone, Copy, Debug, Default)]
pub struct Description<'a> {
    /// As its programmers call it, qualified.
    pub name: &'a str,
    /// The source file; empty if unknown.
    pub file: &'a str,
    /// The first line; 0 if unknown.
    pub first_line: u32,
    /// In the order of their positions.
    pub lines: &'a [Line],
    /// Whether positions are lines.
    pub direct: bool,
}

impl Description<'_> {
    fn code(&self) -> Code {
        Code {
            size: size_of::<Code>(),
            name: self.name.as_ptr().cast(),
            name_length: self.name.len(),
            file: self.file.as_ptr().cast(),
            file_length: self.file.len(),
            lines: self.lines.as_ptr(),
            line_count: self.lines.len(),
            first_line: self.first_line,
            direct: u32::from(self.direct),
        }
    }
}

/// A registered language. It stays registered until [`Registered::remove`]; dropping this changes
/// nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Registered(i32);

/// Registers a language.
///
/// # Errors
/// [`Error::Null`] for a name that is not allowed, [`Error::Full`], [`Error::Memory`].
pub fn add<L: Language>(language: &'static L) -> Result<Registered, Error> {
    let described = described(language);
    type Add = unsafe extern "C" fn(*const layout::Language) -> c_int;
    let number = match function::<Add>(weak_address!("rsunwind_language_add")) {
        // SAFETY: the trait's promise; the language stays.
        Some(add) => checked(unsafe { add(&raw const described) })?,
        // SAFETY: likewise.
        None => unsafe { table::add(&described) }?,
    };
    Ok(Registered(number))
}

/// Registers a language that is part of the runtime itself, in a handler, and gives its place;
/// `None` if that cannot be now. Each frame of that code has an entry. `prepare` is called
/// before the language can be asked, by nobody else meanwhile, and says whether it is still wanted.
///
/// # Signal safety
/// Raw system calls.
pub(super) fn add_own<L: Language>(
    language: &'static L,
    code: Option<Range<u64>>,
    prepare: impl FnOnce() -> bool,
) -> Option<u32> {
    described::prepare_in_walk()?;
    let locked = Locked::unless_held()?;
    if !prepare() {
        return None;
    }
    let own = table::own::IS | code.as_ref().map_or(0, |_| table::own::ENTERS);
    // SAFETY: the trait's promise; the language stays.
    let number = unsafe { table::add_locked(&locked, &described(language), own) };
    let place = table::place_of(number.ok()?);
    if let Some(code) = code {
        table::cover_locked(&locked, place, &code).ok()?;
    }
    Some(place)
}

fn described<L: Language>(language: &'static L) -> layout::Language {
    let entry: Option<layout::EntryCallback> = if L::HAS_ENTRIES {
        Some(entry::<L>)
    } else {
        None
    };
    layout::Language {
        size: size_of::<layout::Language>(),
        name: L::NAME.as_ptr(),
        callback: Some(callback::<L>),
        entry,
        data: ptr::from_ref(language).cast_mut().cast(),
    }
}

unsafe extern "C" fn callback<L: Language>(
    cursor: *mut layout::Cursor,
    data: *mut c_void,
) -> c_int {
    // SAFETY: what `add` registered, and the cursor of this call.
    let (language, cursor) = unsafe { (&*data.cast::<L>().cast_const(), &mut *cursor) };
    match language.unwind(&mut Cursor(cursor)) {
        Answer::NotMine => answer::NOT_MINE,
        Answer::Native => answer::NATIVE,
        Answer::End => answer::END,
        Answer::Need(register) => answer::NEED.wrapping_add(i32::from(register)),
        Answer::Caller(registers, known) => {
            cursor.registers = registers.general;
            cursor.pc = registers.pc;
            cursor.known = known;
            answer::CALLER
        }
    }
}

unsafe extern "C" fn entry<L: Language>(cursor: *mut layout::Cursor, data: *mut c_void) -> u64 {
    // SAFETY: as above.
    let (language, cursor) = unsafe { (&*data.cast::<L>().cast_const(), &mut *cursor) };
    language.entry(&mut Cursor(cursor)).unwrap_or(0)
}

impl Registered {
    /// From now on it is asked about frames with code in that range.
    ///
    /// # Errors
    /// [`Error::Null`] for an empty range, [`Error::Full`], [`Error::InCallback`].
    pub fn cover(&self, code: core::ops::Range<u64>) -> Result<(), Error> {
        self.change(code, true)
    }

    /// No more, before other code takes its place.
    ///
    /// # Errors
    /// [`Error::Null`] for a range that was not covered, [`Error::InCallback`].
    pub fn uncover(&self, code: core::ops::Range<u64>) -> Result<(), Error> {
        self.change(code, false)
    }

    fn change(&self, code: core::ops::Range<u64>, is_on: bool) -> Result<(), Error> {
        type Change = unsafe extern "C" fn(c_int, u64, usize) -> c_int;
        let address = match is_on {
            true => weak_address!("rsunwind_language_cover"),
            false => weak_address!("rsunwind_language_uncover"),
        };
        let Some(change) = function::<Change>(address) else {
            return table::cover(self.0, code.start, code.end, is_on);
        };
        let size = code.end.saturating_sub(code.start) as usize;
        // SAFETY: no memory involved.
        checked(unsafe { change(self.0, code.start, size) }).map(|_| ())
    }

    /// What has happened to it so far.
    ///
    /// # Errors
    /// [`Error::NoClient`] cannot come while this is there.
    pub fn counts(&self) -> Result<Counts, Error> {
        type CountsFunction = unsafe extern "C" fn(c_int, *mut Counts) -> c_int;
        let address = weak_address!("rsunwind_language_counts");
        let Some(function) = function::<CountsFunction>(address) else {
            return table::counts(self.0);
        };
        let mut counts = Counts::default();
        // SAFETY: the place is ours.
        checked(unsafe { function(self.0, &raw mut counts) })?;
        Ok(counts)
    }

    /// Takes it back and waits until none of its callbacks runs; none will afterwards.
    ///
    /// # Errors
    /// [`Error::InCallback`] from within one, with the language, which stays registered.
    pub fn remove(self) -> Result<(), (Self, Error)> {
        type Remove = unsafe extern "C" fn(c_int) -> c_int;
        let done = match function::<Remove>(weak_address!("rsunwind_language_remove")) {
            // SAFETY: no memory involved.
            Some(remove) => checked(unsafe { remove(self.0) }).map(|_| ()),
            None => table::remove(self.0),
        };
        done.map_err(|error| (self, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{self, Client, Stack};
    use core::sync::atomic::AtomicU64;
    use core::sync::atomic::Ordering::SeqCst;
    use engine::wire::sample::Method;

    /// Knows of one entry, in the frame of who set it.
    struct Toy {
        entry: AtomicU64,
        wrong: AtomicU64,
    }

    // SAFETY: atomics and the cursor.
    unsafe impl Language for Toy {
        const NAME: &'static CStr = c"toy";
        const HAS_ENTRIES: bool = true;

        fn entry(&self, cursor: &mut Cursor<'_>) -> Option<u64> {
            cursor.state()[0] = 7;
            Some(self.entry.load(SeqCst)).filter(|entry| *entry != 0)
        }

        fn unwind(&self, cursor: &mut Cursor<'_>) -> Answer {
            let entry = cursor.entry();
            let mut copied = [0; 8];
            let is_right = entry == self.entry.load(SeqCst)
                && cursor.state()[0] == 7
                && cursor.flags() & layout::flags::ENTRY != 0
                && cursor.register(7).is_some_and(|sp| sp <= entry)
                && cursor.cfa().is_some_and(|cfa| entry < cfa)
                && cursor.load(entry) == Ok(0x1234)
                && cursor.copy(entry, &mut copied).is_ok()
                && u64::from_le_bytes(copied) == 0x1234
                && cursor.load(8) == Err(Error::Unreadable);
            self.wrong.fetch_add(u64::from(!is_right), SeqCst);
            let describe = || Description {
                name: "toy function",
                ..Description::default()
            };
            for position in [11, 12] {
                let added = cursor.frame(9, 9, position, describe);
                self.wrong.fetch_add(u64::from(added.is_err()), SeqCst);
            }
            cursor.set_entry(None);
            Answer::Native
        }
    }

    static TOY: Toy = Toy {
        entry: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
    };

    /// The positions of the toy's frames on the stack that was seen last.
    static SEEN: AtomicU64 = AtomicU64::new(0);

    unsafe extern "C" fn see(stack: *const Stack, _: u64, _: *mut c_void) {
        // SAFETY: the entry's.
        let frames = unsafe { (*stack).frames() };
        let own = frames
            .iter()
            .filter(|frame| frame.method == Method::Language);
        let digits = own.fold(0, |seen, frame| seen * 100 + u64::from(frame.position));
        SEEN.store(digits, SeqCst);
    }

    #[inline(never)]
    fn interpret(client: &Client) {
        let entry = 0x1234u64;
        TOY.entry.store(&raw const entry as u64, SeqCst);
        client.request().unwrap();
        TOY.entry.store(0, SeqCst);
    }

    #[test]
    fn a_language_of_a_rust_program_has_its_frames_on_the_stack() {
        // SAFETY: atomics only.
        let client = unsafe { clients::Client::register(see, ptr::null_mut()) }.unwrap();
        let language = add(&TOY).unwrap();
        interpret(&client);
        assert_eq!((SEEN.load(SeqCst), TOY.wrong.load(SeqCst)), (1112, 0));
        let counts = language.counts().unwrap();
        assert_eq!((counts.asked, counts.frames, counts.unreadable), (1, 2, 1));
        client.request().unwrap();
        assert_eq!(SEEN.load(SeqCst), 0, "not in the interpreter");
        assert_eq!(language.cover(8..8), Err(Error::Null));
        language.remove().unwrap();
        interpret(&client);
        assert_eq!(SEEN.load(SeqCst), 0, "taken back");
        client.unregister().unwrap();
    }
}
