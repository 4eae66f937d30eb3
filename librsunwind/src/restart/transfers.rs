//! Transfers that a signal has cut short, and what is left of them to do.
//!
//! A pipe, a socket or a terminal gives a short count to a blocking write if a signal comes in its
//! midst; `/dev/zero` and the random devices to a read of more than a page. What is missing is
//! asked for by a second call. So is the wait of `io_uring_enter` behind what it has taken: if a
//! signal ends that, the count of what was taken does not tell. A second call must not wait where
//! the first one would not have, nor raise what it would not have raised, so anything but these is
//! left as it is.
//!
//! Not here: how the second call is made ([`super::resume`]).

use super::calls::has_time;
use crate::sys;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

/// How what is left of a transfer is said by its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A count of bytes, in that argument, from the address in the other, if it has one.
    Bytes { address: Option<usize>, size: usize },
    /// A vector of pieces: the second argument and the third.
    Pieces,
    /// A message with such a vector: the second argument points to its header.
    Message,
    /// Many messages: the second argument and the third.
    Messages,
    /// Requests of an `io_uring`, as many as the second argument says, and a wait for their results
    /// behind them.
    Requests,
}

/// What a descriptor must be for a short count to be a signal's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// The first argument is a pipe, a socket or a terminal.
    Taker,
    /// The first argument is a device that gives bytes out of nothing.
    Giver,
    /// The first argument is a socket.
    Socket,
}

/// What kind of transfer a system call is that has transferred less than it was asked for; `None`
/// if it is none, or that is as it should be.
pub(crate) fn transfer(number: i64, arguments: &[u64; 6]) -> Option<(Part, Needs)> {
    let [_, _, _, fourth, ..] = *arguments;
    let bytes = |address, size| Part::Bytes { address, size };
    let blocks = fourth & libc::MSG_DONTWAIT as u64 == 0;
    Some(match number {
        libc::SYS_write => (bytes(Some(1), 2), Needs::Taker),
        libc::SYS_sendto if blocks => (bytes(Some(1), 2), Needs::Socket),
        libc::SYS_read | libc::SYS_pread64 => (bytes(Some(1), 2), Needs::Giver),
        libc::SYS_getrandom => (bytes(Some(0), 1), Needs::Nothing),
        // Whatever takes it: the kernel looks for signals between two parts.
        libc::SYS_sendfile => (bytes(None, 3), Needs::Nothing),
        libc::SYS_copy_file_range => (bytes(None, 4), Needs::Nothing),
        libc::SYS_splice => (bytes(None, 4), Needs::Taker),
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => (Part::Pieces, Needs::Taker),
        libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => (Part::Pieces, Needs::Giver),
        libc::SYS_sendmsg => (Part::Message, Needs::Socket),
        libc::SYS_sendmmsg if blocks => (Part::Messages, Needs::Socket),
        libc::SYS_recvmmsg if blocks && fourth & libc::MSG_WAITFORONE as u64 == 0 => {
            (Part::Messages, Needs::Socket)
        }
        libc::SYS_io_uring_enter if waits_for_results(arguments) => {
            (Part::Requests, Needs::Nothing)
        }
        _ => return None,
    })
}

/// Whether `io_uring_enter` waits once it has taken what it was given, however long that takes.
fn waits_for_results(arguments: &[u64; 6]) -> bool {
    const GET_EVENTS: u64 = 1;
    let [_, requests, results, flags, ..] = *arguments;
    requests as u32 != 0 && results as u32 != 0 && flags & GET_EVENTS != 0 && !has_time(arguments)
}

/// What a descriptor is, as far as transfers are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Other,
    Socket,
    PipeOrTerminal,
    Giver,
}

/// Descriptors whose kind is remembered.
const REMEMBERED: usize = 1024;

/// What descriptors were when they could last be asked, each a [`Kind`].
static KINDS: [AtomicU8; REMEMBERED] = [const { AtomicU8::new(Kind::Other as u8) }; REMEMBERED];

/// Remembers what descriptors there are: soon nobody may ask any more. A file that gets such a
/// number later gives no short count for which another call would do harm.
pub(crate) fn remember_kinds() {
    for (fd, kept) in KINDS.iter().enumerate() {
        kept.store(kind(fd as u64) as u8, Relaxed);
    }
}

/// What a descriptor was when it was remembered.
///
/// # Signal safety
/// A load.
pub(crate) fn remembered_kind(fd: u64) -> Kind {
    let kept = KINDS.get(fd as usize).map(|kept| kept.load(Relaxed));
    let is = |kind: &Kind| Some(*kind as u8) == kept;
    let known = [Kind::Socket, Kind::PipeOrTerminal, Kind::Giver];
    known.into_iter().find(is).unwrap_or(Kind::Other)
}

/// # Signal safety
/// A system call.
pub(crate) fn kind(fd: u64) -> Kind {
    /// The devices that are terminals: consoles, their multiplexer, the slaves of pseudo terminals.
    const TERMINALS: [u32; 2] = [4, 5];
    const PSEUDO: core::ops::RangeInclusive<u32> = 136..=143;
    const MEMORY: u32 = 1;
    let Some(status) = sys::status(fd as i32) else {
        return Kind::Other;
    };
    let (major, minor) = (libc::major(status.st_rdev), libc::minor(status.st_rdev));
    match status.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => Kind::Socket,
        libc::S_IFIFO => Kind::PipeOrTerminal,
        libc::S_IFCHR if TERMINALS.contains(&major) || PSEUDO.contains(&major) => {
            Kind::PipeOrTerminal
        }
        // `/dev/zero`, `/dev/random`, `/dev/urandom`
        libc::S_IFCHR if major == MEMORY && matches!(minor, 5 | 8 | 9) => Kind::Giver,
        _ => Kind::Other,
    }
}

/// A `struct iovec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Piece {
    pub address: u64,
    pub size: u64,
}

/// What is left of a vector of which so many bytes are done: the rest of a piece, and how many
/// pieces are behind that.
pub(crate) fn rest_of(pieces: &[Piece], mut done: u64) -> (Option<Piece>, usize) {
    for (index, piece) in pieces.iter().enumerate() {
        if done < piece.size {
            let rest = Piece {
                address: piece.address.wrapping_add(done),
                size: piece.size.wrapping_sub(done),
            };
            let behind = pieces.len().saturating_sub(index).saturating_sub(1);
            return (Some(rest), behind);
        }
        done = done.wrapping_sub(piece.size);
    }
    (None, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_vector() {
        let piece = |address, size| Piece { address, size };
        let pieces = [piece(1000, 10), piece(2000, 0), piece(3000, 5)];
        assert_eq!(rest_of(&pieces, 4), (Some(piece(1004, 6)), 2));
        assert_eq!(rest_of(&pieces, 10), (Some(piece(3000, 5)), 0));
        assert_eq!(rest_of(&pieces, 12), (Some(piece(3002, 3)), 0));
        assert_eq!(rest_of(&pieces, 15), (None, 0));
    }

    #[test]
    fn only_calls_that_wait_for_all_of_it_go_on() {
        let with_flags = |flags: i32| [3, 0, 9, flags as u64, 0, 0];
        let is = |number, flags| transfer(number, &with_flags(flags)).is_some();
        assert!(is(libc::SYS_sendto, 0) && !is(libc::SYS_sendto, libc::MSG_DONTWAIT));
        assert!(is(libc::SYS_recvmmsg, 0) && !is(libc::SYS_recvmmsg, libc::MSG_WAITFORONE));
        assert!(!is(libc::SYS_recvfrom, 0) && !is(libc::SYS_close, 0));
    }

    #[test]
    fn a_wait_for_results_goes_on_where_it_has_no_time() {
        let (get_events, extended) = (1, 8);
        let is = |requests, results, flags| {
            let arguments = [3, requests, results, flags, 0, 8];
            transfer(libc::SYS_io_uring_enter, &arguments) == Some((Part::Requests, Needs::Nothing))
        };
        assert!(is(2, 1, get_events));
        assert!(!is(2, 1, 0) && !is(2, 0, get_events) && !is(0, 1, get_events));
        assert!(!is(2, 1, get_events | extended));
    }
}
