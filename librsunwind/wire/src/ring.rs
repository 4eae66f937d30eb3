//! A thread's perf ring: the form of the records that the kernel writes into it, and the word by
//! which the thread and the collector agree on who takes them out.
//!
//! All events of a thread write to one ring, so that one cursor, the end of its newest record, is
//! the nonce for all of them. Every event has the same
//! `SAMPLE_TYPE`, whose first word says which event it was.
//!
//! ```text
//! sample:  | header | event id | ip | pid, tid | time | count | counter id | lost | n | n entries …
//!          | register ABI | fp | sp | ip |
//! lost:    | header | event id | how many | …
//! ```
//!
//! A sample has what its event has counted since it was opened, and not its period: at a rate the
//! kernel sets the period anew at every tick, also ends it at once, and says the one that it had in
//! mind. On one machine the sum of those was up to four times too much.
//!
//! The counter is the event. Of what the kernel counts itself, page faults for one, it makes one
//! sample for all events that count it, and leaves the event id of the first in it, be that a
//! stranger's (Linux 6.18 does). Before 6.0 it did not, and two times are there instead of the
//! counter's id and what it has lost.
//!
//! Where the kernel defers user call chains the chain of a sample ends in a marker and its cookie:
//! its name of the entry.
//!
//! The thread itself empties its ring whenever its handler runs, until the collector claims the
//! ring ([`COLLECTOR`]): it has been offered it ([`super::offer`]) and has mapped it. From then on
//! only the collector moves the tail. Nobody ever waits.
//!
//! Source of the layouts: `perf_event_open(2)`, `include/uapi/linux/perf_event.h`.

use super::kernel::{KernelHead, MAX_DEPTH};
use super::offer::{CPU_EVENT, MAX_EVENTS, Offer};

/// Bytes of the control page before the data.
pub const CONTROL_SIZE: usize = 4096;
/// Where the control page has the position behind the newest record, bytes.
pub const HEAD_OFFSET: usize = 1024;
/// Where it has the position up to which records were taken out, bytes.
pub const TAIL_OFFSET: usize = 1032;
/// Where it has the owner's word: at its end, far behind what the kernel uses of the page.
pub const OWNER_OFFSET: usize = CONTROL_SIZE - 8;

/// Where it has the position up to which the thread has taken user stacks: just before that. What
/// lies behind it and was sampled in user mode waits for a handler that is held back.
pub const SERVED_OFFSET: usize = CONTROL_SIZE - 16;

/// Where it has what each event, in the order of [`Offer::events`], had counted at its newest
/// sample that the thread took out: before that.
pub const COUNTED_OFFSET: usize = SERVED_OFFSET - MAX_EVENTS * 8;

/// The owner's word: the thread empties the ring in its handler, and has offered it. The kernel's
/// fresh page says 0, which is none of these: who maps the events of a thread that has let go of
/// its ring gets a fresh one.
pub const THREAD: u64 = 1;
/// The collector empties the ring.
pub const COLLECTOR: u64 = 2;
/// The thread empties it at this moment.
pub const BUSY: u64 = 4;
/// Bit of the owner's word: the thread has let go of its events, nothing more is wanted of them.
pub const CLOSED: u64 = 8;

/// Bit of the owner's word: the thread has put another ring in its place. The events go on until
/// the last who has mapped this one lets go of it: what lies behind the position up to which it was
/// served is in the other ring, too.
pub const REPLACED: u64 = 16;

const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const CPU_MODE_MASK: u64 = 7;
const CPU_MODE_KERNEL: u64 = 1;
const CPU_MODE_USER: u64 = 2;
/// `PERF_CONTEXT_MAX`: call chain entries from here on are markers.
const FIRST_MARKER: u64 = (-4095i64) as u64;
/// `PERF_CONTEXT_KERNEL`: addresses of the kernel follow.
const KERNEL_MARKER: u64 = (-128i64) as u64;
/// `PERF_CONTEXT_USER_DEFERRED`: a cookie follows.
const DEFERRED_MARKER: u64 = (-640i64) as u64;
/// Words of a sample before its call chain.
const FIXED: u64 = 9;
/// Words of a sample behind its call chain.
const REGISTERS: u64 = 4;
/// The longest sample there can be, bytes: with less room the kernel may have dropped one.
pub const LONGEST_SAMPLE: u64 = (FIXED + MAX_DEPTH as u64 + 8 + REGISTERS) * 8;

/// A sample as the ring has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSample {
    /// The kernel's number of the event (`PERF_EVENT_IOC_ID`), or of another that counts the same.
    pub event_id: u64,
    /// Its number for sure, where the kernel says it.
    pub counter_id: u64,
    /// Whether it was taken in kernel mode.
    pub in_kernel: bool,
    /// What the event has counted since it was opened, in its own unit.
    pub count: u64,
    /// Cursor (a position in the ring), time, registers; its event is not known here and 0.
    pub head: KernelHead,
    /// The user's frame pointer, as the kernel saw it; 0 if it had none.
    pub user_fp: u64,
    /// Frames stored, from the leaf.
    pub depth: usize,
}

impl RingSample {
    /// What is to be recorded of it, if anything: samples of kernel mode, and all those of other
    /// events than CPU time. Of the ring that is offered so; `counted` is given the count of one
    /// of its events, by its place among [`Offer::events`], and gives the highest before.
    ///
    /// # Signal safety
    /// Arithmetic and `counted` only.
    #[must_use]
    pub fn recorded(
        &self,
        ring: &Offer,
        counted: impl FnOnce(usize, u64) -> u64,
    ) -> Option<KernelHead> {
        let (place, event) = self.event(ring);
        let (value, more) = match event {
            CPU_EVENT => (0, ring.periods.saturating_sub(1)),
            _ => (self.count.saturating_sub(counted(place, self.count)), 0),
        };
        (self.in_kernel || event != CPU_EVENT).then_some(KernelHead {
            cursor: self.head.cursor.wrapping_add(ring.base),
            event,
            value,
            more,
            ..self.head
        })
    }

    /// The place of its event among those of the ring, and our number of it.
    fn event(&self, ring: &Offer) -> (usize, u32) {
        let sure = Offer::find(&ring.events, self.counter_id);
        let found = sure.or_else(|| Offer::find(&ring.events, self.event_id));
        found.unwrap_or((0, CPU_EVENT))
    }

    /// What is to be recorded besides: a sample of CPU time in user mode, for which no user stack
    /// was taken at once. It is recorded as one of the kernel's without frames.
    ///
    /// # Signal safety
    /// Arithmetic only.
    #[must_use]
    pub fn unserved(&self, ring: &Offer) -> Option<KernelHead> {
        let (_, event) = self.event(ring);
        (!self.in_kernel && event == CPU_EVENT).then_some(KernelHead {
            cursor: self.head.cursor.wrapping_add(ring.base),
            more: ring.periods.saturating_sub(1),
            ..self.head
        })
    }
}

/// The first sample in what is looked at of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstSample {
    /// The kernel's number of the event.
    pub event_id: u64,
    /// Where it was taken.
    pub ip: u64,
    /// When it was written (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// Whether it was taken in user mode: where the thread has not got on since, the kernel has
    /// done nothing for it but to raise its signal, and what interrupted that.
    pub in_user: bool,
    /// Nothing new comes before or behind it.
    pub is_alone: bool,
}

/// The record at position `at` of a ring whose newest record ends at `head`, if it is a sample.
///
/// # Signal safety
/// Reads up to four words through `word`.
pub fn first_sample(word: impl Fn(u64) -> u64, at: u64, head: u64) -> Option<FirstSample> {
    if at == head {
        return None;
    }
    let header = word(at);
    let (kind, misc, size) = (header as u32, header >> 32 & 0xffff, header >> 48);
    let field = |index: u64| word(at.wrapping_add(index.wrapping_mul(8)));
    (kind == RECORD_SAMPLE).then(|| FirstSample {
        event_id: field(1),
        ip: field(2),
        time_ns: field(4),
        in_user: misc & CPU_MODE_MASK == CPU_MODE_USER,
        is_alone: at.wrapping_add(size) == head,
    })
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingRecord {
    /// A sample; its frames are in the buffer given.
    Sample(RingSample),
    /// The ring was full: so many samples were not written.
    Lost(u64),
    /// Something else.
    Other,
}

/// Reads the record at position `at` of a ring whose newest record ends at `head`, through `word`,
/// which reads at any position. Gives it with the position behind it; `None` if that is no record,
/// whatever the bytes are.
///
/// # Signal safety
/// Reads through `word` only; bounded by the deepest call chain.
pub fn read(
    word: impl Fn(u64) -> u64,
    at: u64,
    head: u64,
    frames: &mut [u64; MAX_DEPTH],
) -> Option<(RingRecord, u64)> {
    let header = word(at);
    let (kind, misc, size) = (header as u32, header >> 32 & 0xffff, header >> 48);
    let end = at.wrapping_add(size);
    if size < 8 || !size.is_multiple_of(8) || head.wrapping_sub(at) < size {
        return None;
    }
    let at = |index: u64| word(at.wrapping_add(index.wrapping_mul(8)));
    let record = match kind {
        RECORD_SAMPLE => {
            let in_kernel = misc & CPU_MODE_MASK == CPU_MODE_KERNEL;
            RingRecord::Sample(sample(at, size >> 3, end, in_kernel, frames))
        }
        RECORD_LOST if size >= 24 => RingRecord::Lost(at(2)),
        _ => RingRecord::Other,
    };
    Some((record, end))
}

fn sample(
    word: impl Fn(u64) -> u64,
    words: u64,
    end: u64,
    in_kernel: bool,
    frames: &mut [u64; MAX_DEPTH],
) -> RingSample {
    let room = words.saturating_sub(FIXED.wrapping_add(1));
    let count = word(8).min(room);
    let (mut depth, mut marker, mut cookie) = (0usize, KERNEL_MARKER, 0);
    for entry in (0..count).map(|index| word(FIXED.wrapping_add(index))) {
        match (entry, marker) {
            (value, DEFERRED_MARKER) => {
                cookie = value;
                marker = 0;
            }
            (new, _) if new >= FIRST_MARKER => marker = new,
            // The kernel looks for the user's frames at once where it cannot put that off: as a
            // thread ends.
            (address, KERNEL_MARKER) => {
                if let Some(slot) = frames.get_mut(depth) {
                    *slot = address;
                    depth = depth.wrapping_add(1);
                }
            }
            _ => {}
        }
    }
    if in_kernel && depth == 0 {
        // No chain could be taken.
        (frames[0], depth) = (word(2), 1);
    }
    let registers = FIXED.wrapping_add(count);
    let known = registers.wrapping_add(REGISTERS) <= words && word(registers) != 0;
    let register = |index: u64| match known {
        true => word(registers.wrapping_add(index)),
        false => 0,
    };
    RingSample {
        event_id: word(1),
        counter_id: word(6),
        in_kernel,
        count: word(5),
        head: KernelHead {
            cursor: end,
            time_ns: word(4),
            user_ip: register(3),
            user_sp: register(2),
            cookie,
            ..KernelHead::default()
        },
        user_fp: register(1),
        depth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offer::EventId;

    fn header(kind: u32, misc: u64, words: usize) -> u64 {
        u64::from(kind) | misc << 32 | (words as u64 * 8) << 48
    }

    fn kernel_sample() -> Vec<u64> {
        let chain = [(-128i64) as u64, 0xffff_8100_0001, 0xffff_8100_0002];
        let mut words = vec![0, 76, 0x10, 5, 1234, 1_000_000, 77, 0, chain.len() as u64];
        words.extend(chain);
        words.extend([2, 0xb9, 0x59, 0x19]);
        words[0] = header(RECORD_SAMPLE, CPU_MODE_KERNEL, words.len());
        words
    }

    fn read_words(words: &[u64], frames: &mut [u64; MAX_DEPTH]) -> Option<(RingRecord, u64)> {
        let word = |at: u64| words.get(at as usize / 8).copied().unwrap_or(0);
        read(word, 0, words.len() as u64 * 8, frames)
    }

    #[test]
    fn a_sample_is_read_without_its_markers() {
        let (words, mut frames) = (kernel_sample(), [0; MAX_DEPTH]);
        let (record, next) = read_words(&words, &mut frames).unwrap();
        let RingRecord::Sample(sample) = record else {
            panic!("{record:?}");
        };
        assert_eq!(next, words.len() as u64 * 8);
        assert_eq!(frames[..sample.depth], [0xffff_8100_0001, 0xffff_8100_0002]);
        assert!(sample.in_kernel);
        assert_eq!((sample.event_id, sample.counter_id), (76, 77));
        assert_eq!(sample.count, 1_000_000);
        assert_eq!(sample.user_fp, 0xb9);
        assert_eq!(
            (
                sample.head.user_sp,
                sample.head.user_ip,
                sample.head.time_ns
            ),
            (0x59, 0x19, 1234)
        );
    }

    #[test]
    fn a_kernel_sample_has_a_frame_and_one_of_user_mode_has_none() {
        let mut frames = [0; MAX_DEPTH];
        let mut words = vec![
            0, 76, 0x10, 5, 1234, 1_000_000, 77, 0, 0, 2, 0xb9, 0x59, 0x19,
        ];
        for (mode, expected) in [(CPU_MODE_KERNEL, &[0x10][..]), (2, &[])] {
            words[0] = header(RECORD_SAMPLE, mode, words.len());
            let (record, _) = read_words(&words, &mut frames).unwrap();
            let RingRecord::Sample(sample) = record else {
                panic!("{record:?}");
            };
            assert_eq!(frames[..sample.depth], *expected);
            let mut ring = Offer {
                base: 1000,
                periods: 7,
                ..Offer::default()
            };
            ring.events[0] = EventId {
                id: 77,
                event: CPU_EVENT,
            };
            let (recorded, unserved) = (sample.recorded(&ring, |_, _| 0), sample.unserved(&ring));
            assert_eq!(recorded.is_some(), sample.in_kernel);
            assert_eq!(unserved.is_some(), !sample.in_kernel);
            let head = recorded.or(unserved).unwrap();
            assert_eq!((head.cursor, head.user_ip), (1000 + 104, 0x19));
            assert_eq!(head.weight(), 7);
            ring.events[0].event = 3;
            let counted = |place, count| {
                assert_eq!((place, count), (0, 1_000_000));
                999_990
            };
            let head = sample.recorded(&ring, counted).unwrap();
            assert_eq!((head.weight(), head.event, head.value), (0, 3, 10));
            assert!(sample.unserved(&ring).is_none());
            let first = |at, head| first_sample(|at| words[at as usize / 8], at, head);
            let expected = |is_alone| FirstSample {
                event_id: 76,
                ip: 0x10,
                time_ns: 1234,
                in_user: mode == CPU_MODE_USER,
                is_alone,
            };
            assert_eq!(first(0, 104), Some(expected(true)));
            assert_eq!(first(0, 208), Some(expected(false)));
            assert_eq!(first(104, 104), None);
            words[0] = header(RECORD_LOST, mode, words.len());
            assert_eq!(first_sample(|_| words[0], 0, 104), None);
        }
    }

    #[test]
    fn a_deferred_chain_ends_in_its_cookie_and_users_frames_are_left_out() {
        let (user, deferred) = ((-512i64) as u64, DEFERRED_MARKER);
        let with = |more: &[u64]| {
            let mut words = kernel_sample();
            words[8] += more.len() as u64;
            words.splice(12..12, more.iter().copied());
            words[0] = header(RECORD_SAMPLE, CPU_MODE_KERNEL, words.len());
            let mut frames = [0; MAX_DEPTH];
            let (record, _) = read_words(&words, &mut frames).unwrap();
            let RingRecord::Sample(sample) = record else {
                panic!("{record:?}");
            };
            assert_eq!(frames[..sample.depth], [0xffff_8100_0001, 0xffff_8100_0002]);
            assert_eq!((sample.head.user_ip, sample.user_fp), (0x19, 0xb9));
            sample.head.cookie
        };
        assert_eq!(with(&[]), 0);
        assert_eq!(with(&[deferred, 0xb_0000_0006]), 0xb_0000_0006);
        assert_eq!(with(&[user, 0x401_000, 0x402_000]), 0);
        assert_eq!(with(&[deferred]), 0, "cut short");
    }

    #[test]
    fn lost_samples_are_counted_and_unknown_records_passed_over() {
        let mut frames = [0; MAX_DEPTH];
        let lost = [header(RECORD_LOST, 0, 3), 77, 12];
        assert_eq!(
            read_words(&lost, &mut frames),
            Some((RingRecord::Lost(12), 24))
        );
        let other = [header(99, 0, 2), 0];
        assert_eq!(
            read_words(&other, &mut frames),
            Some((RingRecord::Other, 16))
        );
    }

    #[test]
    fn whatever_the_bytes_are_no_record_reaches_beyond_the_head() {
        let mut frames = [0; MAX_DEPTH];
        for size in [0u64, 4, 12, 0xfff8] {
            let words = [size << 48 | u64::from(RECORD_SAMPLE), 0, 0];
            assert_eq!(read_words(&words, &mut frames), None, "size {size}");
        }
        // A count of frames beyond the record's own end.
        let mut words = kernel_sample();
        words[8] = u64::MAX;
        let (record, _) = read_words(&words, &mut frames).unwrap();
        assert!(matches!(record, RingRecord::Sample(sample) if sample.head.user_ip == 0));
    }
}
