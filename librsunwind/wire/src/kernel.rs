//! The kernel's half of a sample: its stack at the moment of the event, and what it saw of the
//! user's registers.
//!
//! Kernel samples of a thread belong to the user sample ([`super::sample`]) whose nonce is the
//! first at or above their cursor: together they are one entry into the kernel. The thread writes
//! them itself, or the collector does, in chunks of its own ([`super::chunk::FROM_RING`]). Like
//! samples they lean on the one before in the chunk: outer frames in common are only counted.
//!
//! ```text
//! cursor Δ | time Δ | user ip Δ | user sp Δ | event [value] | reused | new frames
//!     | frame Δ … frame Δ (to the frame before) | [cookie [more]]
//! ```
//!
//! A sample of CPU time without frames was taken in user mode: it waits for a user stack, too,
//! because no handler ran for it at once.
//!
//! The cookie is left out where there is none; 1 is that of the kernel sample before, and any other
//! has its halves exchanged: a counter and, above it, a small number. What the sample stands for
//! more than one period is left out where that is nothing; the cookie before it is 0 if there is
//! none.

use super::WireError;
use super::codec::{Decoder, Encoder};
use super::offer::CPU_EVENT;

/// Deepest kernel stack kept, frames; the kernel's own limit is 127.
pub const MAX_DEPTH: usize = 127;

/// Everything of a kernel sample but its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KernelHead {
    /// End position in the thread's perf ring, plus where that ring begins among the thread's
    /// nonces: at most the nonce of the user stack that it belongs to.
    pub cursor: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub time_ns: u64,
    /// The user's instruction pointer, as the kernel saw it; 0 if it had none.
    pub user_ip: u64,
    /// The user's stack pointer, as the kernel saw it; 0 if it had none.
    pub user_sp: u64,
    /// Which event it was: [`super::offer::CPU_EVENT`], or one that was asked for beside it, whose
    /// samples of user mode are here, too, without frames.
    pub event: u32,
    /// For other events than CPU time: what the event counted since its sample before, in its own
    /// unit; else 0.
    pub value: u64,
    /// The kernel's own name of the entry, which it gives where it defers user call chains (Linux
    /// 6.19 and later); else 0.
    pub cookie: u64,
    /// Of CPU time: how many sampling periods it stands for, besides one.
    pub more: u64,
}

impl KernelHead {
    const BLANK: Self = Self {
        cursor: 0,
        time_ns: 0,
        user_ip: 0,
        user_sp: 0,
        event: 0,
        value: 0,
        cookie: 0,
        more: 0,
    };

    /// Sampling periods of CPU time that it stands for; 0 of other events.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        match self.event {
            CPU_EVENT => self.more.saturating_add(1),
            _ => 0,
        }
    }
}

/// Stands for the cookie of the kernel sample before.
const SAME_COOKIE: u64 = 1;

/// Writes a payload. Frames are kernel addresses from the leaf: where it stood, then return
/// addresses.
///
/// # Signal safety
/// Writes into the caller's buffer only.
pub fn encode(
    out: &mut Encoder<'_>,
    previous: Option<(&KernelHead, &[u64])>,
    head: &KernelHead,
    frames: &[u64],
) {
    let (before, frames_before) = previous.unwrap_or((&KernelHead::BLANK, &[]));
    let reused = frames_before
        .iter()
        .rev()
        .zip(frames.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (new, _) = frames
        .split_at_checked(frames.len().wrapping_sub(reused))
        .unwrap_or((frames, &[]));
    out.difference(before.cursor, head.cursor);
    out.difference(before.time_ns, head.time_ns);
    out.difference(before.user_ip, head.user_ip);
    out.difference(before.user_sp, head.user_sp);
    out.number(u64::from(head.event));
    if head.event != CPU_EVENT {
        out.number(head.value);
    }
    out.number(reused as u64);
    out.number(new.len() as u64);
    let mut last = u64::MAX << 32;
    for frame in new {
        out.difference(last, *frame);
        last = *frame;
    }
    if head.cookie != 0 || head.more != 0 {
        out.number(match head.cookie != 0 && head.cookie == before.cookie {
            true => SAME_COOKIE,
            false => head.cookie.rotate_left(32),
        });
    }
    if head.more != 0 {
        out.number(head.more);
    }
}

/// A decoded payload. The whole stack is the new frames, then the outermost `reused` ones of the
/// kernel sample before.
#[derive(Clone, Copy, Debug)]
pub struct KernelSample<'a> {
    /// Everything but the frames.
    pub head: KernelHead,
    /// How many outermost frames are those of the kernel sample before in the chunk.
    pub reused: usize,
    new: usize,
    frames: Decoder<'a>,
}

impl<'a> KernelSample<'a> {
    /// Reads a payload; `before` is the head of the kernel sample before in the same chunk, or the
    /// default.
    ///
    /// # Errors
    /// Any [`WireError`] of the numbers in it.
    pub fn decode(payload: &'a [u8], before: &KernelHead) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        let mut head = KernelHead {
            cursor: from.difference(before.cursor)?,
            time_ns: from.difference(before.time_ns)?,
            user_ip: from.difference(before.user_ip)?,
            user_sp: from.difference(before.user_sp)?,
            event: from.small("event")?,
            value: 0,
            cookie: 0,
            more: 0,
        };
        if head.event != CPU_EVENT {
            head.value = from.number()?;
        }
        let reused = from.small("reused frames")? as usize;
        let new = from.small("new frames")? as usize;
        if reused.saturating_add(new) > MAX_DEPTH {
            return Err(WireError::BadValue("kernel frames", new as u64));
        }
        let frames = from;
        for _ in 0..new {
            from.number()?;
        }
        head.cookie = match from.number() {
            Ok(0) | Err(WireError::Truncated(_)) => 0,
            Ok(SAME_COOKIE) => before.cookie,
            Ok(cookie) => cookie.rotate_left(32),
            Err(error) => return Err(error),
        };
        head.more = match from.number() {
            Err(WireError::Truncated(_)) => 0,
            more => more?,
        };
        Ok(Self {
            head,
            reused,
            new,
            frames,
        })
    }

    /// The frames that differ from the kernel sample before, from the leaf.
    pub fn new_frames(&self) -> impl Iterator<Item = Result<u64, WireError>> + use<'a> {
        let mut from = self.frames;
        let mut last = u64::MAX << 32;
        (0..self.new).map(move |_| {
            last = from.difference(last)?;
            Ok(last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_samples_round_trip_alone_and_after_another() {
        let first = [
            0xffff_ffff_8100_1234u64,
            0xffff_ffff_8200_0000,
            0xffff_ffff_8100_00aa,
        ];
        let head = KernelHead {
            cursor: 64,
            time_ns: 1 << 50,
            user_ip: 0x7fff_1234,
            user_sp: 0x7ffe_0000,
            ..KernelHead::default()
        };
        let mut buffer = [0; 256];
        let mut out = Encoder::new(&mut buffer);
        encode(&mut out, None, &head, &first);
        let length = out.finish().unwrap();
        let sample = KernelSample::decode(&buffer[..length], &KernelHead::default()).unwrap();
        assert_eq!((sample.head, sample.reused), (head, 0));
        assert_eq!(
            sample.new_frames().collect::<Result<Vec<_>, _>>().unwrap(),
            first
        );
        for cut in 0..length {
            let whole = KernelSample::decode(&buffer[..cut], &KernelHead::default())
                .is_ok_and(|s| s.new_frames().all(|f| f.is_ok()));
            assert!(!whole, "cut at {cut}");
        }

        let second = [0xffff_ffff_8100_5555u64, first[1], first[2]];
        let later = KernelHead {
            cursor: 128,
            time_ns: head.time_ns + 9,
            event: 2,
            value: 1 << 40,
            ..head
        };
        let mut out = Encoder::new(&mut buffer);
        encode(&mut out, Some((&head, &first)), &later, &second);
        let length = out.finish().unwrap();
        let sample = KernelSample::decode(&buffer[..length], &head).unwrap();
        assert_eq!((sample.head, sample.reused), (later, 2));
        assert_eq!(
            sample.new_frames().collect::<Result<Vec<_>, _>>().unwrap(),
            second[..1]
        );
    }

    #[test]
    fn cookies_round_trip_and_are_missing_from_records_without() {
        let frames = [0xffff_ffff_8100_1234u64];
        let cookie = 0xb_0000_0006;
        let head = |cookie| KernelHead {
            cursor: 64,
            cookie,
            ..KernelHead::default()
        };
        let written = |before: Option<&KernelHead>, head: &KernelHead| {
            let mut buffer = [0; 64];
            let mut out = Encoder::new(&mut buffer);
            encode(
                &mut out,
                before.map(|head| (head, &frames[..])),
                head,
                &frames,
            );
            let length = out.finish().unwrap();
            // As records are padded.
            buffer[..length.next_multiple_of(8)].to_vec()
        };
        let (none, first, second) = (head(0), head(cookie), head(cookie + (2 << 32)));
        for (before, now) in [
            (none, first),
            (first, first),
            (first, second),
            (first, none),
            (none, none),
        ] {
            let bytes = written(Some(&before), &now);
            let read = KernelSample::decode(&bytes, &before).unwrap();
            assert_eq!(read.head, now);
        }
        for cookie in [0, cookie] {
            let paced = KernelHead {
                more: 41,
                ..head(cookie)
            };
            for before in [none, first] {
                let bytes = written(Some(&before), &paced);
                let read = KernelSample::decode(&bytes, &before).unwrap();
                assert_eq!((read.head, read.head.weight()), (paced, 42));
            }
        }
        let same = written(Some(&first), &first).len();
        assert!(same < written(None, &first).len());
        // A record from before there were cookies ends with its frames.
        let mut buffer = [0; 64];
        let mut out = Encoder::new(&mut buffer);
        encode(&mut out, None, &none, &frames);
        let length = out.finish().unwrap();
        let read = KernelSample::decode(&buffer[..length], &first).unwrap();
        assert_eq!(read.head.cookie, 0);
    }

    #[test]
    fn more_frames_than_the_kernel_gives_are_refused() {
        let mut buffer = [0; 16];
        let mut out = Encoder::new(&mut buffer);
        for number in [0, 0, 0, 0, 0, 100, 28] {
            out.number(number);
        }
        let length = out.finish().unwrap();
        assert!(KernelSample::decode(&buffer[..length], &KernelHead::default()).is_err());
    }
}
