//! What is left of a call that our signal has ended or cut short, where making it again as it was
//! would not do: a transfer of which a part is done, and a call on a socket with a time limit of
//! its own, which would count from anew.
//!
//! A second call of a socket can bring an error that was meant for the program's next one: a
//! connection that has failed is told at once, since what was sent is lost with it; where something
//! has come in, nothing is asked of a socket that has an error. `SIGPIPE` is not raised by what is
//! left.
//!
//! # Safety
//! Reads what the call's arguments point to, which the kernel has just read, and writes below the
//! interrupted function's stack pointer.
#![allow(unsafe_code)]

use super::calls::EXTENDED;
use super::registers::{CallRegisters, LENGTH};
use super::resume::{self, Rest};
use super::transfers::{Kind, Needs, Part, Piece, kind, remembered_kind, rest_of, transfer};
use super::{Calls, may_make};
use crate::sys;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use engine::memory::is_readable;

const PAGE: u64 = 4096;
/// What `recvmmsg` leaves on the socket where it was cut short: an error of the kernel's own.
const RESTART_ERROR: i32 = 512;

/// Sockets known to have time limits, a bit each.
pub static LIMITED: [AtomicU64; LIMITED_COUNT / 64] =
    [const { AtomicU64::new(0) }; LIMITED_COUNT / 64];
/// Descriptors of which that can be known.
pub const LIMITED_COUNT: usize = 4096;
/// A socket has a time limit: calls on it are to be noted with their time. A descriptor is an int:
/// what stands above it in a register may be anything.
pub fn limit_noted(fd: u64) {
    let fd = fd as u32;
    if let Some(word) = LIMITED.get(fd as usize / 64) {
        word.fetch_or(1 << (fd % 64), Relaxed);
    }
}

/// Whether it is known to have one.
#[inline]
pub fn is_limited(fd: u64) -> bool {
    let fd = fd as u32;
    LIMITED
        .get(fd as usize / 64)
        .is_some_and(|word| word.load(Relaxed) & 1 << (fd % 64) != 0)
}

impl Calls {
    /// A call that may have been cut short goes on; whether it does.
    pub(super) fn go_on(&self, at: &mut CallRegisters, number: i64) -> bool {
        let is_page = at.value >= PAGE && at.value.is_multiple_of(PAGE);
        let may_be_cut = match transfer(number, &at.arguments) {
            Some((Part::Bytes { size, .. }, needs)) => {
                at.value < at.argument(size) && (needs != Needs::Giver || is_page)
            }
            Some((Part::Messages, _)) => at.value < u64::from(at.argument(2) as u32),
            // Where not all were taken the call has ended by itself.
            Some((Part::Requests, _)) => at.value == u64::from(at.argument(1) as u32),
            Some((Part::Pieces | Part::Message, _)) => true,
            None => self.waits_for_all(number, at),
        };
        if !may_be_cut {
            return false;
        }
        let mut rest = Rest {
            pc: at.pc,
            flags: at.flags,
            kept: at.arguments,
            ..Rest::default()
        };
        let base = resume::place(at.sp);
        let waits = match transfer(number, &at.arguments) {
            None => {
                if !wait_for_all(&mut rest, base, number, at) {
                    return false;
                }
                true
            }
            Some((part, needs)) => {
                let kind = match needs {
                    Needs::Nothing => Kind::Other,
                    _ if !may_make(libc::SYS_fstat, None) => remembered_kind(at.argument(0)),
                    _ => kind(at.argument(0)),
                };
                let is_right = match needs {
                    Needs::Nothing => true,
                    Needs::Taker => matches!(kind, Kind::Socket | Kind::PipeOrTerminal),
                    Needs::Giver => kind == Kind::Giver,
                    Needs::Socket => kind == Kind::Socket,
                };
                if !is_right || !left(&mut rest, base, (part, kind), number, at) {
                    return false;
                }
                false
            }
        };
        self.send_to(rest, base, at, waits)
    }

    /// Whether a call was to wait for all that was asked for, and may have less.
    fn waits_for_all(&self, number: i64, at: &CallRegisters) -> bool {
        let (flags, is_less) = match number {
            libc::SYS_recvfrom => (at.argument(3), at.value < at.argument(2)),
            // SAFETY: the header that the kernel has read.
            libc::SYS_recvmsg => (at.argument(2), unsafe { control(at.argument(1)) } == 0),
            _ => return false,
        };
        let (all, not) = (libc::MSG_WAITALL, libc::MSG_PEEK | libc::MSG_DONTWAIT);
        let needed = [libc::SYS_recvfrom, libc::SYS_ppoll, libc::SYS_getsockopt];
        needed.iter().all(|number| may_make(*number, None))
            && flags as i32 & all != 0
            && flags as i32 & not == 0
            && is_less
            // Elsewhere a message is all that there is to wait for.
            && sys::is_stream(at.argument(0) as i32)
    }

    /// A call on a socket that a signal has ended, because it has a time limit, is made again
    /// within that; whether it is.
    pub(super) fn go_on_within_limit(&self, at: &mut CallRegisters, number: i64) -> bool {
        let (option, events, too_late) = match number {
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_accept
            | libc::SYS_accept4 => (libc::SO_RCVTIMEO, libc::POLLIN, libc::EAGAIN),
            libc::SYS_write | libc::SYS_writev | libc::SYS_sendto | libc::SYS_sendmsg => {
                (libc::SO_SNDTIMEO, libc::POLLOUT, libc::EAGAIN)
            }
            libc::SYS_connect => (libc::SO_SNDTIMEO, libc::POLLOUT, libc::EINPROGRESS),
            _ => return false,
        };
        let fd = at.argument(0);
        let is_known = [libc::SYS_getsockopt, libc::SYS_ppoll]
            .iter()
            .all(|number| may_make(*number, None));
        let limit_ns = match is_known {
            true => sys::socket_time_ns(fd as i32, option),
            false => 0,
        };
        if limit_ns == 0 {
            at.go_back(number);
            return true;
        }
        // Its first call of all may be a call that nothing is known of: a signal of ours comes
        // while the thread runs, as it does when it begins to wait.
        limit_noted(fd);
        let left_ns = match self.is_of(at) && self.since_ns.get() != 0 {
            true => self.left_ns(limit_ns),
            false => limit_ns,
        };
        let base = resume::place(at.sp);
        let rest = Rest {
            pc: at.pc,
            flags: at.flags,
            kept: at.arguments,
            number: number as u64,
            call: at.arguments,
            expected: u64::MAX,
            poll: [fd as u32, events as u32],
            limit: base.wrapping_add(offset_of!(Rest, time) as u64),
            too_late: i64::from(too_late).wrapping_neg() as u64,
            time: [left_ns / super::SECOND, left_ns % super::SECOND],
            ..Rest::default()
        };
        self.send_to(rest, base, at, true)
    }

    /// A thread that makes what is left was interrupted behind one of the two instructions; whether
    /// it goes back.
    pub(super) fn go_on_again(&self, at: &mut CallRegisters) -> bool {
        if at.pc == resume::waited() {
            // The kernel has written what is left of the time.
            let is_interrupted = at.is_interrupted();
            if is_interrupted {
                at.go_back(libc::SYS_ppoll);
            }
            return is_interrupted;
        }
        // SAFETY: the thread is where it comes with this there only.
        let rest = unsafe { &mut *(at.sp as *mut Rest) };
        if at.is_interrupted() {
            if rest.limit != 0 {
                wait(rest, at.sp, at);
            } else {
                at.go_back(rest.number as i64);
            }
            return true;
        }
        let number = rest.number as i64;
        let is_all = at.value as i64 <= 0
            || rest.waits_for_all != 0
            || rest.expected == u64::MAX
            || (rest.expected != 0 && at.value >= rest.expected);
        let Some((part, _)) = transfer(number, &rest.call).filter(|_| !is_all) else {
            return false;
        };
        let kind = match rest.is_message != 0 || number == libc::SYS_sendto {
            true => Kind::Socket,
            false => Kind::PipeOrTerminal,
        };
        let base = at.sp;
        at.arguments = rest.call;
        let next = rest.next;
        if !left(rest, base, (part, kind), number, at) {
            return false;
        }
        if rest.next.size == 0 {
            rest.next = next;
        }
        self.make(rest, at);
        true
    }

    /// Lays what is left on the thread's stack, and sends the thread there; whether there is room.
    pub(super) fn send_to(
        &self,
        rest: Rest,
        base: u64,
        at: &mut CallRegisters,
        waits: bool,
    ) -> bool {
        let (low, high) = self.known_stack.get();
        let is_known = (low..high).contains(&base) || base / PAGE == at.sp / PAGE;
        if !is_known && !is_readable(base & !7) {
            return false;
        }
        // SAFETY: below the red zone of the interrupted function, on a page of its stack.
        let rest = unsafe {
            let place = base as *mut Rest;
            place.write_unaligned(rest);
            &mut *place
        };
        at.sp = base;
        match waits {
            true => wait(rest, base, at),
            false => self.make(rest, at),
        }
        true
    }

    fn make(&self, rest: &Rest, at: &mut CallRegisters) {
        at.arguments = rest.call;
        at.pc = resume::made();
        at.go_back(rest.number as i64);
    }
}

/// Makes the registers those of the wait.
fn wait(rest: &Rest, base: u64, at: &mut CallRegisters) {
    let poll = base.wrapping_add(offset_of!(Rest, poll) as u64);
    at.arguments = [poll, 1, rest.limit, 0, 8, 0];
    at.pc = resume::waited();
    at.go_back(libc::SYS_ppoll);
    debug_assert_eq!(at.pc.wrapping_add(LENGTH), resume::waited());
}

/// What comes in goes on coming in: as it is there, without waiting, after a wait each time.
/// Whether there is room for more; the wait is first then.
fn wait_for_all(rest: &mut Rest, base: u64, number: i64, at: &CallRegisters) -> bool {
    let [fd, second, third, fourth, ..] = at.arguments;
    let (piece, flags) = match number {
        libc::SYS_recvmsg => {
            // SAFETY: the header that the kernel has read.
            let (pieces, count) = unsafe { vector(second) };
            // SAFETY: the vector that it has read.
            let all =
                unsafe { core::slice::from_raw_parts(pieces as *const Piece, count as usize) };
            let (Some(piece), behind) = rest_of(all, at.value) else {
                return false;
            };
            rest.next = behind_of(pieces, count, behind as u64);
            (piece, third)
        }
        _ => {
            let piece = Piece {
                address: second.wrapping_add(at.value),
                size: third.wrapping_sub(at.value),
            };
            (piece, fourth)
        }
    };
    let limit_ns = sys::socket_time_ns(fd as i32, libc::SO_RCVTIMEO);
    let flags = flags as i32 & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    rest.done = at.value;
    rest.number = libc::SYS_recvfrom as u64;
    rest.call = [fd, piece.address, piece.size, flags as u64, 0, 0];
    rest.waits_for_all = 1;
    rest.poll = [fd as u32, libc::POLLIN as u32];
    rest.time = [limit_ns / super::SECOND, limit_ns % super::SECOND];
    if limit_ns != 0 {
        rest.limit = base.wrapping_add(offset_of!(Rest, time) as u64);
    }
    true
}

/// The last pieces of a vector: where they are, and how many.
fn behind_of(pieces: u64, count: u64, behind: u64) -> Piece {
    let before = count.wrapping_sub(behind);
    Piece {
        address: pieces.wrapping_add(before.wrapping_mul(size_of::<Piece>() as u64)),
        size: behind,
    }
}

/// Makes the call what is left of the one behind which the thread stands; whether there is
/// something, and it may be.
fn left(
    rest: &mut Rest,
    base: u64,
    (part, kind): (Part, Kind),
    number: i64,
    at: &CallRegisters,
) -> bool {
    let done = at.value;
    let quiet = libc::MSG_NOSIGNAL as u64;
    rest.call = at.arguments;
    rest.number = number as u64;
    let mut set = |index: usize, value: u64| {
        if let Some(argument) = rest.call.get_mut(index) {
            *argument = value;
        }
    };
    match part {
        Part::Bytes { address, size } => {
            let bytes = at.argument(size).wrapping_sub(done);
            if let Some(address) = address {
                set(address, at.argument(address).wrapping_add(done));
            }
            set(size, bytes);
            rest.expected = bytes;
            let [fd, address, size, flags, _, sixth] = rest.call;
            match number {
                libc::SYS_write | libc::SYS_sendto if kind == Kind::Socket => {
                    let flags = if number == libc::SYS_sendto { flags } else { 0 };
                    let call = [fd, address, size, flags | quiet, 0, 0];
                    // Where a filter forbids that, `SIGPIPE` comes one call early.
                    if may_make(libc::SYS_sendto, Some(&call)) {
                        (rest.number, rest.call) = (libc::SYS_sendto as u64, call);
                    }
                }
                libc::SYS_splice => {
                    // What is there: more may never come.
                    let nonblocking = sixth | u64::from(libc::SPLICE_F_NONBLOCK);
                    let [.., last] = &mut rest.call;
                    *last = nonblocking;
                }
                _ => {}
            }
        }
        Part::Messages => {
            // SAFETY: the kernel has written the message that was done last.
            let is_whole = unsafe { is_whole(at.argument(1), done) };
            let receives = number == libc::SYS_recvmmsg;
            // Else the next call would show it.
            let is_ours = receives
                && may_make(libc::SYS_getsockopt, None)
                && sys::socket_error(at.argument(0) as i32) == RESTART_ERROR;
            if receives != is_ours || !(receives || is_whole) {
                return false;
            }
            let count = u64::from(at.argument(2) as u32).wrapping_sub(done);
            set(1, at.argument(1).wrapping_add(done.wrapping_mul(MESSAGE)));
            set(2, count);
            if !receives {
                set(3, at.argument(3) | quiet);
            }
            rest.expected = count;
        }
        // Ends at once if the results are there, and gives 0. It waits for as many as the first
        // call: if another thread has taken those meanwhile, more may never come.
        Part::Requests => {
            const LONGEST: u64 = 5;
            let limit = base.wrapping_add(offset_of!(Rest, header) as u64);
            let time = limit.wrapping_add(EXTENDED_SIZE);
            let mask_size = u64::from(at.argument(5) as u32);
            rest.header = [at.argument(4), mask_size, time, LONGEST, 0, 0, 0];
            set(1, 0);
            set(3, at.argument(3) | EXTENDED);
            set(4, limit);
            set(5, EXTENDED_SIZE);
        }
        Part::Pieces | Part::Message => {
            let (pieces, count) = match part {
                // SAFETY: the header that the kernel has read.
                Part::Message => unsafe { vector(at.argument(1)) },
                // An `int` to the kernel, whatever lies above it.
                _ => (at.argument(1), u64::from(at.argument(2) as u32)),
            };
            // SAFETY: the vector that the kernel has read.
            let all =
                unsafe { core::slice::from_raw_parts(pieces as *const Piece, count as usize) };
            let (Some(piece), behind) = rest_of(all, done) else {
                return false;
            };
            rest.expected = piece.size;
            rest.piece = piece;
            rest.next = behind_of(pieces, count, behind as u64);
            let half_done = base.wrapping_add(offset_of!(Rest, piece) as u64);
            let is_sent = number == libc::SYS_sendmsg || may_make(libc::SYS_sendmsg, None);
            if kind == Kind::Socket && is_sent {
                let flags = match part {
                    Part::Message => at.argument(2) | quiet,
                    _ => quiet,
                };
                rest.is_message = 1;
                rest.header = [0, 0, half_done, 1, 0, 0, 0];
                rest.number = libc::SYS_sendmsg as u64;
                let header = base.wrapping_add(offset_of!(Rest, header) as u64);
                rest.call = [at.argument(0), header, flags, 0, 0, 0];
            } else {
                rest.number = match kind {
                    Kind::Giver => libc::SYS_readv as u64,
                    _ if number == libc::SYS_readv => libc::SYS_readv as u64,
                    _ => libc::SYS_writev as u64,
                };
                rest.call = [at.argument(0), half_done, 1, 0, 0, 0];
            }
        }
    }
    rest.done = rest.done.wrapping_add(done);
    rest.number == number as u64 || may_make(rest.number as i64, Some(&rest.call))
}

/// Bytes of a `struct io_uring_getevents_arg`: a mask, its size, and where a time is.
const EXTENDED_SIZE: u64 = 24;

/// Bytes of a `struct mmsghdr`.
const MESSAGE: u64 = 64;

/// The vector of a `struct msghdr`, and how many pieces it has.
///
/// # Safety
/// One lies there.
unsafe fn vector(header: u64) -> (u64, u64) {
    // SAFETY: the caller's promise.
    let [_, _, pieces, count] = unsafe { (header as *const [u64; 4]).read_unaligned() };
    (pieces, count)
}

/// Where a `struct msghdr` has room for control messages; 0 where it has none. What is left of a
/// message may bring some, for which there would be none any more.
///
/// # Safety
/// One lies there.
unsafe fn control(header: u64) -> u64 {
    // SAFETY: the caller's promise.
    let [.., control] = unsafe { (header as *const [u64; 5]).read_unaligned() };
    control
}

/// Whether the last of so many messages was sent whole.
///
/// # Safety
/// So many lie there.
unsafe fn is_whole(messages: u64, done: u64) -> bool {
    const LENGTH: u64 = 56;
    let last = messages.wrapping_add(done.wrapping_sub(1).wrapping_mul(MESSAGE));
    // SAFETY: the caller's promise.
    let (sent, all) = unsafe {
        let (pieces, count) = vector(last);
        (
            (last.wrapping_add(LENGTH) as *const u32).read_unaligned(),
            core::slice::from_raw_parts(pieces as *const Piece, count as usize),
        )
    };
    rest_of(all, u64::from(sent)).0.is_none()
}
