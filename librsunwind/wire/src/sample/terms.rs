//! The words of a sample that have numbers: what made a thread unwind itself, why the walk ended,
//! how a frame was found. Numbers once given keep their meaning.
//!
//! Not here: how a sample is written ([`super`]).

/// What made the thread unwind itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Trigger {
    /// Nothing known.
    #[default]
    None = 0,
    /// A perf event that samples in user and kernel mode.
    PerfKernel = 1,
    /// A perf event that samples in user mode only.
    PerfUser = 2,
    /// A CPU timer of the thread.
    Timer = 3,
    /// A request by a client.
    Request = 4,
}

impl Trigger {
    /// The trigger of that number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::PerfKernel,
            2 => Self::PerfUser,
            3 => Self::Timer,
            4 => Self::Request,
            _ => return None,
        })
    }
}

/// Why a walk ended. Only [`StopReason::Root`] claims a complete stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum StopReason {
    /// The tables say that the frame has no caller (undefined return address, SFrame outermost).
    Root = 0,
    /// The frame-pointer chain ended in zero, in code without tables.
    FramePointerZero = 1,
    /// The return address is zero.
    NullPc = 2,
    /// The pc lies in no module and no frame pointer led on.
    UnknownCode = 3,
    /// The module has no table row for the pc and no frame pointer led on.
    #[default]
    NoRow = 4,
    /// A table is damaged or uses what we do not understand.
    BadTable = 5,
    /// Stack memory that the rule needs is not readable.
    UnreadableStack = 6,
    /// The rule needs a register whose value was not recovered.
    MissingRegister = 7,
    /// The caller's stack pointer is not above the callee's: a loop or a torn stack.
    NotAdvancing = 8,
    /// The walk reached the bound on frames visited.
    FrameBudget = 9,
    /// The walk reached the bound on time or on slow steps.
    TimeBudget = 10,
    /// The sample was abandoned by the handler's safety net.
    Abandoned = 11,
    /// The stack goes on beyond the part of it that was copied, which the collector unwound.
    CopyEnded = 12,
    /// The thread had the signal blocked, and went on without a walk: only the leaf is known, or
    /// nothing.
    Blocked = 13,
    /// A walk would have cost more than a sample may: only the leaf is known, or nothing.
    LeftOut = 14,
}

impl StopReason {
    /// All reasons, by number.
    pub const ALL: [Self; 15] = [
        Self::Root,
        Self::FramePointerZero,
        Self::NullPc,
        Self::UnknownCode,
        Self::NoRow,
        Self::BadTable,
        Self::UnreadableStack,
        Self::MissingRegister,
        Self::NotAdvancing,
        Self::FrameBudget,
        Self::TimeBudget,
        Self::Abandoned,
        Self::CopyEnded,
        Self::Blocked,
        Self::LeftOut,
    ];

    /// The reason of that number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// A few words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Root => "reached the root",
            Self::FramePointerZero => "frame pointer chain ended",
            Self::NullPc => "null return address",
            Self::UnknownCode => "code of no module",
            Self::NoRow => "no unwind information",
            Self::BadTable => "damaged unwind table",
            Self::UnreadableStack => "unreadable stack",
            Self::MissingRegister => "register not recovered",
            Self::NotAdvancing => "stack does not advance",
            Self::FrameBudget => "too many frames",
            Self::TimeBudget => "too slow",
            Self::Abandoned => "abandoned",
            Self::CopyEnded => "deeper than the copy of the stack",
            Self::Blocked => "the signal was blocked",
            Self::LeftOut => "left out, since walks are slow here",
        }
    }
}

/// How a frame was found: what was applied to its callee. It also says what kind of address the
/// frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Method {
    /// The interrupted registers themselves: the leaf.
    #[default]
    Registers = 0,
    /// An SFrame row.
    Sframe = 1,
    /// An `.eh_frame` row.
    EhFrame = 2,
    /// The frame-pointer chain.
    FramePointer = 3,
    /// The registers that the kernel saved when it delivered a signal.
    SignalFrame = 4,
    /// The return address at the top of the stack or in the link register, in code known to have no
    /// frame yet.
    Leaf = 5,
    /// A language said where its caller is: native code again.
    Told = 6,
    /// Offline, from a copy of the stack.
    StackCopy = 7,
    /// A language unwinder: a frame of an interpreter, which has no address.
    Language = 8,
}

impl Method {
    /// The method of that number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Registers,
            1 => Self::Sframe,
            2 => Self::EhFrame,
            3 => Self::FramePointer,
            4 => Self::SignalFrame,
            5 => Self::Leaf,
            6 => Self::Told,
            7 => Self::StackCopy,
            8 => Self::Language,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stop_reason_and_method_keeps_its_number() {
        for (number, reason) in StopReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number);
        }
        for number in 0..9 {
            assert_eq!(Method::from_number(number).unwrap() as u8, number);
        }
        for number in 0..5 {
            assert_eq!(Trigger::from_number(number).unwrap() as u8, number);
        }
    }
}
