//! One stack: who asked, when, with which weight, why the walk ended, and its frames.
//!
//! Samples of a chunk lean on each other: numbers are stored as differences to the sample before,
//! and the outer frames that are the same as in the sample before are only counted. The first
//! sample of a chunk leans on [`SampleHead::default`] and no frames.
//!
//! ```text
//! nonce Δ | time Δ | weight | trigger | stop reason | flags | sp Δ | [labels | changes Δ]
//!     | reused | elided [elided at] | new frames | frame … frame
//! frame:  | c zzz mmmm | LEB128 …
//!     m: method, z: low bits of the zigzag difference to the pc before, c: more bytes follow
//! ```
//!
//! A frame of an interpreter has the number of a code object ([`super::code`]) for its pc, the
//! difference is to that of the interpreter's frame before, and its position follows as a number.

mod terms;

pub use terms::{Method, StopReason, Trigger};

use super::WireError;
use super::codec::{Decoder, Encoder, unzigzag, zigzag};
use crate::address::{CodeAddress, RuntimeAddress};

/// One step of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Frame {
    /// As found: for a caller the address that the call returns to. Of [`Method::Language`] the
    /// number of the code object.
    pub pc: RuntimeAddress,
    /// How it was found.
    pub method: Method,
    /// Of [`Method::Language`]: where in the code object, in the language's own counting. Else 0.
    pub position: u32,
}

impl Frame {
    /// A frame of native code.
    #[inline]
    #[must_use]
    pub const fn native(pc: RuntimeAddress, method: Method) -> Self {
        Self {
            pc,
            method,
            position: 0,
        }
    }

    /// The address with its meaning, for looking it up.
    #[must_use]
    pub const fn code_address(self) -> CodeAddress {
        match self.method {
            Method::Registers | Method::SignalFrame | Method::Language => {
                CodeAddress::Instruction(self.pc)
            }
            _ => CodeAddress::Return(self.pc),
        }
    }
}

/// Bits of [`SampleHead::flags`].
pub mod flags {
    /// The perf ring was full: the nonce stands still.
    pub const RING_FULL: u64 = 1;
    /// The stack was redone with `.eh_frame` to recover a register.
    pub const REDONE: u64 = 2;
    /// The thread ran on a stack that is not its own (alternate stack, coroutine).
    pub const FOREIGN_STACK: u64 = 4;
    /// Taken at the end of its thread, not at an event: it stands for the CPU time since the sample
    /// before.
    pub const LAST: u64 = 8;
    /// Read from outside while the thread was in the kernel, at the end of the recording: it has
    /// the weight of the kernel's samples that it is joined with, one period each.
    pub const FROM_OUTSIDE: u64 = 16;
    /// The thread was off the CPU without having asked for it: it could have run on.
    pub const PREEMPTED: u64 = 32;
    /// In format version 2, before the reused frames: three numbers more.
    pub const THREE_MORE: u64 = 64;
    /// The signal came in behind a system call of the program's own making, by which it had blocked
    /// it.
    pub const LET_IN: u64 = 128;
    /// A language's answer could not be believed, or it missed its frames: some may be missing
    /// here.
    pub const LANGUAGE_TROUBLE: u64 = 256;
    /// The thread had the lock of its interpreter (Python's GIL).
    pub const INTERPRETER_LOCK: u64 = 512;
    /// It waited for that.
    pub const WAITS_FOR_INTERPRETER_LOCK: u64 = 1024;
    /// There were signals before it, since the sample before, that no walk was made for: it would
    /// have cost more than a sample may.
    pub const WALKS_LEFT_OUT: u64 = 2048;
    /// Seen from outside, in a process that has an interpreter, and over before its frames could be
    /// read.
    pub const LANGUAGES_UNREAD: u64 = 4096;
    /// As written: labels and changes follow.
    pub const LABELLED: u64 = 8192;
    /// Those that only say how the rest is written.
    pub(super) const OF_FORM: u64 = THREE_MORE | LABELLED;
}

/// Everything of a sample but its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SampleHead {
    /// Ties the stack to the kernel's samples of the same entry; never 0 in a sample written.
    pub nonce: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub time_ns: u64,
    /// How many sampling periods it stands for.
    pub weight: u64,
    /// What made the thread unwind.
    pub trigger: Trigger,
    /// Why the walk ended.
    pub stop: StopReason,
    /// See [`flags`].
    pub flags: u64,
    /// The interrupted stack pointer.
    pub sp: u64,
    /// Frames left out between [`SampleHead::elided_at`] and the next, because the stack was deeper
    /// than the limit.
    pub elided: u64,
    /// How many leaf-side frames stand before the gap; 0 if none are elided.
    pub elided_at: u64,
    /// The labels of the regions that the thread was in ([`super::label::LabelSet::number`]); 0 for
    /// none.
    pub labels: u64,
    /// How often the thread had begun or ended a region: between two samples with the same number
    /// it did neither. 0 if never; not said of samples that others took of it.
    pub changes: u64,
}

/// Writes a sample's payload. `previous` is the sample before it in the same chunk, if any. Frames
/// run from leaf to root.
///
/// # Signal safety
/// Writes into the caller's buffer only; linear in the number of frames.
pub fn encode(
    out: &mut Encoder<'_>,
    previous: Option<(&SampleHead, &[Frame])>,
    head: &SampleHead,
    frames: &[Frame],
) {
    encode_after(out, previous, 0, head, frames);
}

/// The same where so many of the outermost frames of both stacks are known to be the same, where
/// neither has a gap.
///
/// # Signal safety
/// As [`encode`], and linear in the number of the other frames.
pub fn encode_after(
    out: &mut Encoder<'_>,
    previous: Option<(&SampleHead, &[Frame])>,
    unchanged: usize,
    head: &SampleHead,
    frames: &[Frame],
) {
    let (before, frames_before) = previous.unwrap_or((&BLANK, &[]));
    let unchanged = match before.elided | head.elided {
        0 => unchanged,
        _ => 0,
    };
    let reused = common_root(frames_before, frames, unchanged);
    let (new, _) = frames
        .split_at_checked(frames.len().wrapping_sub(reused))
        .unwrap_or((frames, &[]));
    encode_head(out, before, head, reused, new.len());
    encode_frames(out, &mut Last::default(), new);
}

/// Writes a sample of which `count` frames are kept: both ends, as of a stack that is deeper than
/// the limit. The next one cannot lean on its frames.
///
/// # Signal safety
/// As [`encode`].
pub fn encode_cut(
    out: &mut Encoder<'_>,
    before: Option<&SampleHead>,
    head: &SampleHead,
    frames: &[Frame],
    count: usize,
) {
    let root = count >> 2;
    let leaf = count.wrapping_sub(root);
    let behind = frames.len().wrapping_sub(root);
    let left_out = behind.wrapping_sub(leaf) as u64;
    let head = SampleHead {
        elided: head.elided.wrapping_add(left_out),
        elided_at: leaf as u64,
        ..*head
    };
    encode_head(out, before.unwrap_or(&BLANK), &head, 0, count);
    let mut last = Last::default();
    for part in [frames.get(..leaf), frames.get(behind..)] {
        encode_frames(out, &mut last, part.unwrap_or_default());
    }
}

fn encode_head(
    out: &mut Encoder<'_>,
    before: &SampleHead,
    head: &SampleHead,
    reused: usize,
    new: usize,
) {
    out.difference(before.nonce, head.nonce);
    out.difference(before.time_ns, head.time_ns);
    out.number(head.weight);
    out.byte(head.trigger as u8);
    out.byte(head.stop as u8);
    let labelled = match head.changes | head.labels {
        0 => 0,
        _ => flags::LABELLED,
    };
    out.number(head.flags & !flags::OF_FORM | labelled);
    out.difference(before.sp, head.sp);
    if labelled != 0 {
        out.number(head.labels);
        out.difference(before.changes, head.changes);
    }
    out.number(reused as u64);
    out.number(head.elided);
    if head.elided > 0 {
        out.number(head.elided_at);
    }
    out.number(new as u64);
}

fn encode_frames(out: &mut Encoder<'_>, last: &mut Last, frames: &[Frame]) {
    for frame in frames {
        encode_frame(out, last.of(frame.method), *frame);
    }
}

/// What frames of native code, and those of interpreters, lean on.
#[derive(Clone, Copy, Default)]
struct Last {
    pc: u64,
    code: u64,
}

impl Last {
    #[inline]
    fn of(&mut self, method: Method) -> &mut u64 {
        match method {
            Method::Language => &mut self.code,
            _ => &mut self.pc,
        }
    }
}

const BLANK: SampleHead = SampleHead {
    nonce: 0,
    time_ns: 0,
    weight: 0,
    trigger: Trigger::None,
    stop: StopReason::NoRow,
    flags: 0,
    sp: 0,
    elided: 0,
    elided_at: 0,
    labels: 0,
    changes: 0,
};

/// How many outermost frames two stacks have in common, of which so many are known.
fn common_root(a: &[Frame], b: &[Frame], known: usize) -> usize {
    let split = |frames: &[Frame]| frames.len().checked_sub(known);
    let (Some(more_of_a), Some(more_of_b)) = (split(a), split(b)) else {
        return 0;
    };
    debug_assert_eq!(a.get(more_of_a..), b.get(more_of_b..));
    let more = |frames, count| <[Frame]>::get(frames, ..count).unwrap_or_default();
    let pairs = more(a, more_of_a)
        .iter()
        .rev()
        .zip(more(b, more_of_b).iter().rev());
    known.wrapping_add(pairs.take_while(|(a, b)| a == b).count())
}

fn encode_frame(out: &mut Encoder<'_>, last: &mut u64, frame: Frame) {
    let distance = zigzag(frame.pc.0.wrapping_sub(*last));
    *last = frame.pc.0;
    let rest = distance >> 3;
    let more = if rest > 0 { 0x80 } else { 0 };
    out.byte(more | ((distance as u8 & 7) << 4) | frame.method as u8);
    if rest > 0 {
        out.number(rest);
    }
    if frame.method == Method::Language {
        out.number(u64::from(frame.position));
    }
}

/// A decoded payload. The whole stack is the `new` frames, then the outermost `reused` ones of the
/// sample before.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Everything but the frames.
    pub head: SampleHead,
    /// How many outermost frames are those of the sample before.
    pub reused: usize,
    new: usize,
    frames: Decoder<'a>,
}

impl<'a> Sample<'a> {
    /// Reads a payload; `before` is the head of the sample before in the same chunk, or the
    /// default.
    ///
    /// # Errors
    /// Any [`WireError`] of the numbers in it.
    pub fn decode(payload: &'a [u8], before: &SampleHead) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        let nonce = from.difference(before.nonce)?;
        let time_ns = from.difference(before.time_ns)?;
        let weight = from.number()?;
        let trigger = from.byte()?;
        let trigger = Trigger::from_number(trigger)
            .ok_or(WireError::BadValue("trigger", u64::from(trigger)))?;
        let stop = from.byte()?;
        let stop = StopReason::from_number(stop)
            .ok_or(WireError::BadValue("stop reason", u64::from(stop)))?;
        let flags = from.number()?;
        let sp = from.difference(before.sp)?;
        if flags & flags::THREE_MORE != 0 {
            for _ in 0..3 {
                from.number()?;
            }
        }
        let (labels, changes) = match flags & flags::LABELLED {
            0 => (0, 0),
            _ => (from.number()?, from.difference(before.changes)?),
        };
        let reused = from.small("reused frames")? as usize;
        let elided = from.number()?;
        let elided_at = if elided > 0 { from.number()? } else { 0 };
        let new = from.small("new frames")? as usize;
        let head = SampleHead {
            nonce,
            time_ns,
            weight,
            trigger,
            stop,
            flags: flags & !flags::OF_FORM,
            sp,
            elided,
            elided_at,
            labels,
            changes,
        };
        Ok(Self {
            head,
            reused,
            new,
            frames: from,
        })
    }

    /// Passes over the frames that differ from the sample before. Gives how many there are, if none
    /// was found as [`Method::SignalFrame`].
    ///
    /// # Errors
    /// As those of [`Sample::new_frames`].
    pub fn plain_frames(&self) -> Result<Option<usize>, WireError> {
        let mut from = self.frames;
        let mut are_plain = true;
        for _ in 0..self.new {
            let first = from.byte()?;
            let method = method_of(first)?;
            if goes_on(first) {
                from.pass_number()?;
            }
            if method == Method::Language {
                from.small(POSITION)?;
            }
            are_plain &= method != Method::SignalFrame;
        }
        Ok(are_plain.then_some(self.new))
    }

    /// The frames that differ from the sample before, from the leaf.
    pub fn new_frames(&self) -> impl Iterator<Item = Result<Frame, WireError>> + use<'a> {
        let mut from = self.frames;
        let mut last = Last::default();
        let mut failed = false;
        (0..self.new).map_while(move |_| {
            if failed {
                return None;
            }
            let frame = decode_frame(&mut from, &mut last);
            failed = frame.is_err();
            Some(frame)
        })
    }
}

/// What a position is called in errors.
const POSITION: &str = "a position in code";

/// How a frame was found, and how far its pc is from the one before.
#[inline]
fn decode_step(from: &mut Decoder<'_>) -> Result<(Method, u64), WireError> {
    let first = from.byte()?;
    let method = method_of(first)?;
    let rest = if goes_on(first) { from.number()? } else { 0 };
    Ok((method, rest << 3 | u64::from(first >> 4 & 7)))
}

/// The first byte of a frame says how it was found ...
#[inline]
fn method_of(first: u8) -> Result<Method, WireError> {
    let number = first & 15;
    Method::from_number(number).ok_or(WireError::BadValue("method", u64::from(number)))
}

/// ... and whether more of the distance follows than it has.
#[inline]
const fn goes_on(first: u8) -> bool {
    first & 0x80 != 0
}

#[inline]
fn decode_frame(from: &mut Decoder<'_>, last: &mut Last) -> Result<Frame, WireError> {
    let (method, distance) = decode_step(from)?;
    let last = last.of(method);
    *last = last.wrapping_add(unzigzag(distance));
    let position = match method {
        Method::Language => from.small(POSITION)?,
        _ => 0,
    };
    Ok(Frame {
        pc: RuntimeAddress(*last),
        method,
        position,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(pc: u64, method: Method) -> Frame {
        Frame::native(RuntimeAddress(pc), method)
    }

    #[test]
    fn both_ends_of_a_sample_that_is_cut_are_there() {
        let frames: Vec<Frame> = (0..20).map(|pc| frame(pc, Method::EhFrame)).collect();
        for (elided, elided_at) in [(0, 0), (7, 15)] {
            let head = SampleHead {
                elided,
                elided_at,
                ..SampleHead::default()
            };
            let mut buffer = [0; 512];
            let mut out = Encoder::new(&mut buffer);
            encode_cut(&mut out, None, &head, &frames, 9);
            let length = out.finish().unwrap();
            let sample = Sample::decode(&buffer[..length], &SampleHead::default()).unwrap();
            let of_it = (sample.reused, sample.head.elided, sample.head.elided_at);
            assert_eq!(of_it, (0, elided + 11, 7));
            let kept: Vec<Frame> = sample.new_frames().map(Result::unwrap).collect();
            assert_eq!(kept, [&frames[..7], &frames[18..]].concat());
        }
    }

    fn round_trip(
        previous: Option<(&SampleHead, &[Frame])>,
        head: &SampleHead,
        frames: &[Frame],
    ) -> usize {
        let mut buffer = [0; 512];
        let mut out = Encoder::new(&mut buffer);
        encode(&mut out, previous, head, frames);
        let length = out.finish().unwrap();
        let before = previous.map_or(SampleHead::default(), |(head, _)| *head);
        let sample = Sample::decode(&buffer[..length], &before).unwrap();
        assert_eq!(sample.head, *head);
        let mut all: Vec<Frame> = sample.new_frames().map(Result::unwrap).collect();
        if let Some((_, old)) = previous {
            all.extend(&old[old.len() - sample.reused..]);
        }
        assert_eq!(all, frames);
        length
    }

    #[test]
    fn samples_round_trip_alone_and_after_another() {
        let interpreted = |code, position| Frame {
            position,
            ..frame(code, Method::Language)
        };
        let first = [
            frame(0x7fff_1234_5678, Method::Registers),
            frame(0x5555_0000_1000, Method::EhFrame),
            interpreted(7, 0),
            interpreted(u64::MAX, u32::MAX),
            frame(u64::MAX, Method::SignalFrame),
            frame(0, Method::FramePointer),
            frame(0x5555_0000_2000, Method::Sframe),
        ];
        let head = SampleHead {
            nonce: 64,
            time_ns: 1 << 50,
            weight: 1,
            sp: 0x7ffd_0000,
            ..SampleHead::default()
        };
        round_trip(None, &head, &first);
        let mut second = first;
        second[0].pc.0 += 40;
        second[1].pc.0 -= 3;
        let later = SampleHead {
            nonce: 128,
            time_ns: head.time_ns + 1_000_000,
            elided: 70,
            elided_at: 2,
            labels: 3,
            changes: 1 << 40,
            ..head
        };
        let length = round_trip(Some((&head, &first)), &later, &second);
        assert!(length < 48, "an almost unchanged stack took {length} bytes");
        round_trip(Some((&later, &second)), &head, &[]);
        assert_eq!(
            round_trip(Some((&head, &first)), &later, &first),
            length_of_unchanged(&head, &later, &first)
        );
    }

    fn length_of_unchanged(before: &SampleHead, head: &SampleHead, frames: &[Frame]) -> usize {
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        encode(&mut out, Some((before, frames)), head, frames);
        out.finish().unwrap()
    }

    #[test]
    fn frames_of_interpreters_between_native_ones_take_few_bytes() {
        let native = |pc: u64| frame(0x7fff_1234_0000 + pc, Method::EhFrame);
        let interpreted = |code, position| Frame {
            position,
            ..frame(code, Method::Language)
        };
        let head = SampleHead::default();
        let mixed = [
            native(0),
            interpreted(50, 9),
            native(8),
            interpreted(52, 100),
        ];
        let length = round_trip(None, &head, &mixed);
        let natives = round_trip(None, &head, &[native(0), native(8)]);
        assert!(length - natives <= 6, "{length} bytes, {natives} without");
    }

    #[test]
    fn cut_payloads_are_errors() {
        let head = SampleHead {
            nonce: 9,
            ..SampleHead::default()
        };
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        encode(
            &mut out,
            None,
            &head,
            &[frame(0x1234_5678, Method::EhFrame)],
        );
        let length = out.finish().unwrap();
        for cut in 0..length {
            let whole = Sample::decode(&buffer[..cut], &SampleHead::default())
                .is_ok_and(|s| s.new_frames().all(|f| f.is_ok()));
            assert!(!whole, "cut at {cut}");
        }
    }
}
