//! What a walk asks of those who know frames that no table has: interpreters and JITs.
//!
//! They are asked in two ways. **By code**: a rule of
//! [`Kind::Language`](crate::rule::Kind::Language) leads to them, which is cached like any other;
//! one language may be asked about all code that no table knows.
//! **By stack address**: a language names the stack address of its innermost entry, the fast loop
//! pauses at the native frame that reaches over it (`sp <= entry < CFA`), that frame is the
//! language's, and the next entry is further up. Neither costs anything on stacks without them.
//!
//! An interpreter may have an entry in every other frame. One that needs to know nothing of a frame
//! but where it is gives what it has there in passing ([`Languages::meet`]), in either way.
//!
//! Not here: who is registered, and how callbacks are called and contained (the runtime's
//! `languages`).

use crate::address::RuntimeAddress;
use crate::cursor::Cursor;
use crate::frame_buffer::FrameBuffer;
use crate::memory::StackMemory;
use crate::rule::UnwindRule;
use crate::rule::wide::WideRows;
use crate::wire::sample::StopReason;
use core::fmt::Debug;
use core::ops::Range;

/// Entries of languages that one native frame may reach over. More are not met.
pub const MOST_ENTRIES: u32 = 256;

/// What a language is asked about a frame.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Whose frame it is.
    pub whose: Whose,
    /// The native frame. It is in the frame buffer already.
    pub cursor: &'a Cursor,
    /// Its CFA, where the native rule has said so.
    pub cfa: Option<u64>,
    /// Whether the walk can be redone to know more registers.
    pub can_redo: bool,
}

/// Why a language is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The frame's code is that of the language of this number.
    Code(u32),
    /// The frame reaches over the nearest entry.
    Entry,
}

/// What a language says of a frame. Its own frames are in the frame buffer by then.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// The frame's caller is to be found natively.
    Native,
    /// The same, and what was given stays so.
    Steady(Steady),
    /// This is the caller. The runtime has seen to it that it is further up.
    Caller(Cursor),
    /// It takes a register that is not known: the walk begins again, with more of them.
    MissingRegister,
    /// The stack ends here.
    End,
}

/// What a frame has of a language for as long as it stands where it does and calls from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steady {
    /// Nothing: that code never has, for as long as its rule is this one.
    Nothing,
    /// The one frame that was given, while two words of the native one are the same and until
    /// [`Languages::moment`] is another: the places of the upper one and of the lower one, which is
    /// at most 248 bytes below.
    Frame([u64; 2]),
}

/// The languages of a process, for one walk of one thread.
pub trait Languages: Debug {
    /// A walk begins at the interrupted code, or begins again.
    ///
    /// # Signal safety
    /// All of this is called in the handler.
    fn begin(&self, leaf: &Cursor, memory: &mut StackMemory);

    /// A number that is another when frames that were [`Steady`] are to be asked about again.
    fn moment(&self) -> u64 {
        0
    }

    /// The nearest entry at or above a stack address that was not met yet. Each answer takes it
    /// further up.
    fn entry(&self, from: u64) -> Option<u64>;

    /// The rule of code that was registered.
    fn rule(&self, pc: RuntimeAddress, wide: &WideRows) -> Option<UnwindRule>;

    /// Who is asked about all code that no table knows.
    fn untabled(&self) -> Option<u32>;

    /// Asks about a frame. [`Languages::entry`] is another one afterwards if it was asked by entry.
    fn ask(
        &self,
        question: &Question<'_>,
        memory: &mut StackMemory,
        frames: &mut FrameBuffer<'_>,
    ) -> Answer;

    /// Gives what languages have in a native frame at these addresses, of which the tables alone
    /// tell the caller; and the next entry behind it, or [`u64::MAX`]. `code` is the language whose
    /// code it is, if it is one's. `None`, and nothing is done, if somebody has to know more of the
    /// frame than that, and is to be asked.
    fn meet(
        &self,
        native: Range<u64>,
        code: Option<u32>,
        frames: &mut FrameBuffer<'_>,
    ) -> Option<u64>;

    /// The walk is over, at that frame: who has entries that were not met gives what frames it has.
    /// Where the walk did not come to the stack's root it could not meet them.
    fn finish(
        &self,
        last: &Cursor,
        stop: StopReason,
        memory: &mut StackMemory,
        frames: &mut FrameBuffer<'_>,
    );
}
