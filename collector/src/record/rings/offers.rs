//! The socket on which threads offer their perf rings: who connects is heard out, for a moment, and nobody is answered.
//!
//! A message and its descriptors come from a profiled process and may be anything; what does not check is dropped.

use super::super::door::{Door, owned};
use engine::wire::offer::{MAX_EVENTS, Offer, SIZE, SOCKET_FILE};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Most connections looked at in one look around.
const MOST_AT_ONCE: usize = 4096;
/// Connections whose message is on its way, at most.
const MOST_PENDING: usize = 64;
/// How many looks a message may be on its way.
const PATIENCE: u8 = 8;

/// The socket.
#[derive(Debug)]
pub struct Offers {
    door: Door,
    /// Connections without a message yet, and how many more looks they are given.
    pending: Vec<(OwnedFd, u8)>,
}

impl Offers {
    /// Listens in a session's directory.
    ///
    /// # Errors
    /// As [`Door::open`].
    pub fn listen(session: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self {
            door: Door::open(&session.join(SOCKET_FILE), mode)?,
            pending: Vec::new(),
        })
    }

    /// What was offered since the last look.
    pub fn taken(&mut self) -> Vec<(Offer, Vec<OwnedFd>)> {
        let mut offers = Vec::new();
        let mut waiting = std::mem::take(&mut self.pending);
        for _ in 0..MOST_AT_ONCE {
            let Some(connection) = self.door.next() else {
                break;
            };
            waiting.push((connection, PATIENCE));
        }
        for (connection, patience) in waiting {
            match receive(connection.as_raw_fd()) {
                Ok(offer) => offers.extend(offer),
                Err(Errno::EAGAIN) if patience > 0 && self.pending.len() < MOST_PENDING => {
                    self.pending.push((connection, patience - 1));
                }
                Err(_) => {}
            }
        }
        offers
    }
}

/// The message of a connection: an offer if it is one.
fn receive(connection: i32) -> Result<Option<(Offer, Vec<OwnedFd>)>, Errno> {
    let mut bytes = [0; SIZE + 8];
    let mut vectors = [IoSliceMut::new(&mut bytes)];
    // The kernel closes what does not fit.
    let mut room = nix::cmsg_space!([i32; MAX_EVENTS]);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(connection, &mut vectors, Some(&mut room), flags)?;
    let length = message.bytes;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            descriptors.extend(numbers.into_iter().map(owned));
        }
    }
    let offer = Offer::parse(bytes.get(..length).unwrap_or(&[])).ok();
    let whole = length == SIZE && !descriptors.is_empty();
    Ok(offer.filter(|_| whole).map(|offer| (offer, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{
        AddressFamily, ControlMessage, SockFlag, SockType, UnixAddr, connect, sendmsg, socket,
    };
    use std::fs::File;
    use std::io::IoSlice;

    fn connected(session: &Path) -> OwnedFd {
        let client = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::empty(),
            None,
        );
        let client = client.unwrap();
        let address = UnixAddr::new(&session.join(SOCKET_FILE)).unwrap();
        connect(client.as_raw_fd(), &address).unwrap();
        client
    }

    fn send(session: &Path, bytes: &[u8], files: &[&File]) {
        let client = connected(session);
        let numbers: Vec<i32> = files.iter().map(|file| file.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let rights = if files.is_empty() { &[][..] } else { &rights };
        let vector = [IoSlice::new(bytes)];
        sendmsg::<()>(client.as_raw_fd(), &vector, rights, MsgFlags::empty(), None).unwrap();
    }

    #[test]
    fn only_whole_offers_with_descriptors_are_taken() {
        let session = tempfile::tempdir().unwrap();
        let mut offers = Offers::listen(session.path(), 0o600).unwrap();
        let (file, offer) = (
            tempfile::tempfile().unwrap(),
            Offer {
                pid: 1,
                tid: 2,
                data_size: 1 << 16,
                ..Offer::default()
            },
        );
        let bytes = offer.to_bytes();
        send(session.path(), b"hello", &[&file]);
        send(session.path(), &bytes, &[]);
        send(session.path(), &bytes[..SIZE - 1], &[&file]);
        send(
            session.path(),
            &[bytes.as_slice(), b"more"].concat(),
            &[&file],
        );
        send(session.path(), &[0; SIZE], &[&file]);
        drop(connected(session.path()));
        assert!(offers.taken().is_empty());
        send(session.path(), &bytes, &[&file, &file]);
        let taken = offers.taken();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].0, taken[0].1.len()), (offer, 2));
    }

    #[test]
    fn a_message_that_is_on_its_way_is_waited_for_but_not_for_ever() {
        let session = tempfile::tempdir().unwrap();
        let mut offers = Offers::listen(session.path(), 0o600).unwrap();
        let silent = connected(session.path());
        assert!(offers.taken().is_empty());
        assert_eq!(offers.pending.len(), 1);
        for _ in 0..=PATIENCE {
            assert!(offers.taken().is_empty());
        }
        assert!(offers.pending.is_empty(), "it has had its time");
        drop(silent);
    }
}
