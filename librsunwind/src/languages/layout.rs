//! What crosses the C interface; the layouts are those of `include/rsunwind.h`.
//!
//! # Safety
//! Plain data. Pointers in it are the caller's, good for the call that they are given to.

use core::ffi::{c_char, c_int, c_void};
use engine::registers::{COUNT, Registers};

/// How many languages can be registered at a time.
pub const PLACES: usize = 16;
/// Bytes of a language's state in a walk.
pub const STATE: usize = 256;

/// Bits of [`Cursor::flags`].
pub mod flags {
    /// The pc is that of an interrupted instruction: all registers are known.
    pub const EXACT: u32 = 1;
    /// Asked because the frame reaches over the entry.
    pub const ENTRY: u32 = 2;
    /// Asked because the walk is over and the entry was not met.
    pub const REST: u32 = 4;
    /// More registers cannot be known.
    pub const LAST: u32 = 8;
}

/// What a callback says.
pub mod answer {
    /// The frame is not the language's.
    pub const NOT_MINE: i32 = 0;
    /// The frames are given; this frame is to be unwound natively.
    pub const NATIVE: i32 = 1;
    /// The frames are given, and the cursor is the caller's.
    pub const CALLER: i32 = 2;
    /// The frames are given, and there are no more.
    pub const END: i32 = 3;
    /// Plus a register's number: it has to be known.
    pub const NEED: i32 = 64;
}

/// `struct rsunwind_cursor`.
#[derive(Debug)]
#[repr(C)]
pub struct Cursor {
    /// By DWARF number.
    pub registers: [u64; COUNT],
    /// Where the frame stands.
    pub pc: u64,
    /// The bits of the registers that are known.
    pub known: u32,
    /// Of [`flags`].
    pub flags: u32,
    /// The frame's CFA, if the tables have said so; else 0.
    pub cfa: u64,
    /// The entry that the frame reaches over; the next one, or 0, afterwards.
    pub entry: u64,
    /// The thread's own stack, as far as it was seen: both 0 on another.
    pub stack_low: u64,
    /// See there.
    pub stack_high: u64,
    /// What was interrupted.
    pub interrupted: *const Registers,
    /// [`STATE`] bytes of the language's, zeroed when the walk begins, and begins again.
    pub state: *mut c_void,
    /// Ours.
    pub walk: *const c_void,
    /// What callbacks call.
    pub functions: *const CursorFunctions,
}

/// `struct rsunwind_cursor_functions`.
#[derive(Debug)]
#[repr(C)]
pub struct CursorFunctions {
    /// Bytes of this, so that later versions may have more.
    pub size: usize,
    /// `rsunwind_load`.
    pub load: unsafe extern "C" fn(*const Cursor, u64, *mut u64) -> c_int,
    /// `rsunwind_copy`.
    pub copy: unsafe extern "C" fn(*const Cursor, u64, *mut u8, usize) -> c_int,
    /// `rsunwind_frame`.
    pub frame: unsafe extern "C" fn(*const Cursor, u64, u64, u32) -> c_int,
    /// `rsunwind_describe`.
    pub describe: unsafe extern "C" fn(*const Cursor, *const Code) -> c_int,
}

/// `rsunwind_language_callback`.
pub type Callback = unsafe extern "C" fn(cursor: *mut Cursor, data: *mut c_void) -> c_int;
/// `rsunwind_entry_callback`.
pub type EntryCallback = unsafe extern "C" fn(cursor: *mut Cursor, data: *mut c_void) -> u64;

/// `struct rsunwind_language`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Language {
    /// Bytes of this, so that later versions may have more.
    pub size: usize,
    /// What it is called; ends with a zero byte.
    pub name: *const c_char,
    /// Asked about frames.
    pub callback: Option<Callback>,
    /// Asked for the innermost entry when a walk begins, if there.
    pub entry: Option<EntryCallback>,
    /// For both.
    pub data: *mut c_void,
}

/// `struct rsunwind_line`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Line {
    /// From this position on …
    pub position: u32,
    /// … this is the line.
    pub line: u32,
}

/// `struct rsunwind_code`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Code {
    /// Bytes of this, so that later versions may have more.
    pub size: usize,
    /// What its programmers call it.
    pub name: *const c_char,
    /// Bytes of that.
    pub name_length: usize,
    /// The source file.
    pub file: *const c_char,
    /// Bytes of that.
    pub file_length: usize,
    /// By position.
    pub lines: *const Line,
    /// How many.
    pub line_count: usize,
    /// The first line; 0 if unknown.
    pub first_line: u32,
    /// Whether positions are lines.
    pub direct: u32,
}

/// `struct rsunwind_jit_rule`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct JitRule {
    /// From this offset on.
    pub from: u32,
    /// From the register to the CFA, bytes.
    pub cfa_offset: i32,
    /// Where rbp, rbx, r12, r13, r14 and r15 are saved, from the CFA, bytes; 0 if the code has not
    /// changed it.
    pub saved: [i16; 6],
    /// 6 (rbp) or 7 (rsp).
    pub cfa_register: u16,
    /// Of no meaning.
    pub unused: u16,
}

/// `struct rsunwind_jit_code`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct JitCode {
    /// Bytes of this, so that later versions may have more.
    pub size: usize,
    /// Its first byte.
    pub start: *const c_void,
    /// Bytes of it.
    pub length: usize,
    /// The language's name, as in [`Language`].
    pub language: *const c_char,
    /// What it is shown as; positions are offsets from the start.
    pub code: *const Code,
    /// By offset.
    pub rules: *const JitRule,
    /// How many; without any the code keeps a chain of frame pointers.
    pub rule_count: usize,
}

/// `struct rsunwind_language_counts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// Times that the callback was asked about a frame.
    pub asked: u64,
    /// Frames that it gave.
    pub frames: u64,
    /// Times that it was in trouble, all in all.
    pub troubled: u64,
    /// Of these: it read what cannot be read, or more than a walk may.
    pub unreadable: u64,
    /// It named a caller, or a next entry, that is not further up, or gave an answer that there is
    /// not.
    pub not_advancing: u64,
    /// It took too long, or gave too many frames.
    pub too_long: u64,
    /// Its frames were not found where they should be, or not unwound for want of a register.
    pub missing: u64,
    /// 1 once it has been switched off.
    pub is_off: u64,
}
