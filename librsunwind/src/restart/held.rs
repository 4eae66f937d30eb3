//! Calls that look at many descriptors: where one pass over all of them takes longer than a
//! sampling period, each is ended by a sample, even the last one, behind which the time is over.
//! Such a call is made with our signal held back, by the mask that the kernel's finer call of its
//! kind takes: what comes meanwhile is handled as it ends, at the same instruction.
//!
//! # Safety
//! Reads what the call's arguments point to, which the kernel has just read.
#![allow(unsafe_code)]

use super::registers::{CallRegisters, Signals};
use super::resume::{self, Rest};
use super::{Calls, may_make};
use core::mem::offset_of;

/// Bytes of a set of signals.
const SET: u64 = size_of::<u64>() as u64;

const MILLION: u64 = 1_000_000;

impl Calls {
    /// Sends the thread to where the call is made with our signal held back; whether it may be.
    pub(super) fn hold_back(&self, at: &mut CallRegisters, number: i64, signals: Signals) -> bool {
        let is_poll = [libc::SYS_poll, libc::SYS_ppoll].contains(&number);
        let finer = match is_poll {
            true => libc::SYS_ppoll,
            false => libc::SYS_pselect6,
        };
        if !may_make(finer, None) {
            return false; // ended, rather than never
        }
        let base = resume::place(at.sp);
        let within = |offset: usize| base.wrapping_add(offset as u64);
        let mask_at = within(offset_of!(Rest, mask));
        let mut rest = Rest {
            pc: at.pc,
            flags: at.flags,
            kept: at.arguments,
            expected: u64::MAX,
            ..Rest::default()
        };
        let [first, second, third, fourth, fifth, sixth] = at.arguments;
        // SAFETY: (all reads) what the kernel has read: a set of signals, where it is and its size,
        // a time.
        let word = |address: u64| unsafe { (address as *const u64).read_unaligned() };
        let (own_mask, time) = match number {
            libc::SYS_poll => {
                let milliseconds = u64::from(third as u32);
                rest.time = [milliseconds / 1000, milliseconds % 1000 * 1_000_000];
                let is_timed = third as i32 >= 0;
                (0, is_timed.then(|| within(offset_of!(Rest, time))))
            }
            libc::SYS_select if fifth != 0 => {
                let (seconds, more) = (word(fifth), word(fifth.wrapping_add(8)));
                rest.time = [seconds.wrapping_add(more / MILLION), more % MILLION * 1000];
                (0, Some(within(offset_of!(Rest, time))))
            }
            libc::SYS_select => (0, None),
            libc::SYS_pselect6 if sixth != 0 => (word(sixth), Some(fifth)),
            libc::SYS_pselect6 => (0, Some(fifth)),
            _ => (fourth, Some(third)),
        };
        let time = time.unwrap_or(0);
        let blocked = match own_mask {
            0 => signals.blocked,
            own => word(own),
        };
        rest.mask = blocked | signals.ours;
        rest.number = finer as u64;
        if is_poll {
            rest.call = [first, second, time, mask_at, SET, 0];
        } else {
            rest.set = [mask_at, SET];
            let set_at = within(offset_of!(Rest, set));
            rest.call = [first, second, third, fourth, time, set_at];
        }
        self.send_to(rest, base, at, false)
    }
}
