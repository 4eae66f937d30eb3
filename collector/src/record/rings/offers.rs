//! The socket on which threads offer their perf rings: who connects is heard out, for a moment, and
//! nobody is answered.
//!
//! A message and its descriptors come from a profiled process and may be anything; what does not
//! check is dropped. Whose ring it is says the message, and who has sent it the kernel: nobody
//! offers one in the name of another process.

use super::super::listener::{Listener, owned};
use super::super::owners::Sender;
use crate::processes;
use engine::wire::offer::{MAX_EVENTS, Offer, SIZE, SOCKET_FILE};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, getsockopt, recvmsg};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most connections looked at in one look around.
const MOST_AT_ONCE: usize = 4096;
/// Connections whose message is on its way, at most.
const MOST_PENDING: usize = 64;
/// How many looks a message may be on its way.
const PATIENCE: u8 = 8;

/// The socket.
#[derive(Debug)]
pub struct Offers {
    listener: Listener,
    session: PathBuf,
    /// Connections without a message yet, and how many more looks they are given.
    pending: Vec<(OwnedFd, u8)>,
}

impl AsFd for Offers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Offers {
    /// Listens in a session's directory.
    ///
    /// # Errors
    /// As [`Listener::open`].
    pub fn listen(session: &Path, mode: u32) -> io::Result<Self> {
        Ok(Self {
            listener: Listener::open(&session.join(SOCKET_FILE), mode)?,
            session: session.to_owned(),
            pending: Vec::new(),
        })
    }

    /// What was offered since the last look, one after the other, since descriptors that are open
    /// at once may be few; reasons not to take an offer go to `refused`.
    pub fn take(&mut self, refused: &mut Vec<String>, mut visit: impl FnMut(Offered)) {
        for (connection, patience) in std::mem::take(&mut self.pending) {
            self.hear(connection, patience, refused, &mut visit);
        }
        for _ in 0..MOST_AT_ONCE {
            let Some(connection) = self.listener.next() else {
                break;
            };
            self.hear(connection, PATIENCE, refused, &mut visit);
        }
        // Of too many the oldest have had their time.
        let over = self.pending.len().saturating_sub(MOST_PENDING);
        self.pending.drain(..over);
    }

    fn hear(
        &mut self,
        connection: OwnedFd,
        patience: u8,
        refused: &mut Vec<String>,
        visit: &mut impl FnMut(Offered),
    ) {
        match receive(connection.as_raw_fd()) {
            Ok(None) => {}
            Ok(Some((offer, events))) => match sender(&connection, &offer, &self.session) {
                Ok(sender) => visit(Offered {
                    offer,
                    events,
                    sender,
                }),
                Err(why) => refused.push(why),
            },
            Err(Errno::EAGAIN) if patience > 0 => {
                self.pending.push((connection, patience - 1));
            }
            Err(_) => {}
        }
    }
}

/// A ring that was offered by the process that it names, or the word of that process alone, without
/// events.
#[derive(Debug)]
pub struct Offered {
    /// Whose it is.
    pub offer: Offer,
    /// Its events.
    pub events: Vec<OwnedFd>,
    /// By whom.
    pub sender: Sender,
}

/// Who has connected, if that is the process whose ring is offered.
fn sender(connection: &OwnedFd, offer: &Offer, session: &Path) -> Result<Sender, String> {
    let peer = getsockopt(connection, PeerCredentials)
        .map_err(|errno| format!("a ring is not taken, its sender is not known: {errno}"))?;
    let user = peer.uid();
    let is_process = is_from(&peer, offer);
    match is_process || owns_segment(user, offer, session) {
        true => Ok(Sender { user, is_process }),
        false => Err(format!(
            "a ring is not taken: process {} of user {user} offered it in the name of process {}",
            peer.pid(),
            offer.pid
        )),
    }
}

/// Whether it calls itself by the number of the process that the offer names: in its own PID
/// namespace, which may not be ours.
fn is_from(peer: &UnixCredentials, offer: &Offer) -> bool {
    let pid = peer.pid();
    let named = u32::try_from(pid).is_ok_and(|pid| pid == offer.pid);
    named || pid > 0 && processes::inner_number(pid, pid) == Some(offer.pid)
}

/// Whether somebody who is gone, or whom our PID namespace does not have, is the user whose segment
/// goes with the ring.
fn owns_segment(user: u32, offer: &Offer, session: &Path) -> bool {
    let name = format!("{:x}.{:x}.seg", offer.pid, offer.process_key);
    let about = std::fs::symlink_metadata(session.join(name));
    about.is_ok_and(|about| about.is_file() && about.uid() == user)
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
    let is_whole = |offer: &Offer| descriptors.is_empty() == (offer.data_size == 0);
    let offer = offer.filter(|offer| length == SIZE && is_whole(offer));
    Ok(offer.map(|offer| (offer, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::listener::connected;
    use nix::sys::socket::{ControlMessage, sendmsg};
    use nix::unistd::geteuid;
    use std::fs::File;
    use std::io::IoSlice;

    fn send(session: &Path, bytes: &[u8], files: &[&File]) {
        let client = connected(&session.join(SOCKET_FILE));
        let numbers: Vec<i32> = files.iter().map(|file| file.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let rights = if files.is_empty() { &[][..] } else { &rights };
        let vector = [IoSlice::new(bytes)];
        sendmsg::<()>(client.as_raw_fd(), &vector, rights, MsgFlags::empty(), None).unwrap();
    }

    fn taken(offers: &mut Offers, refused: &mut Vec<String>) -> Vec<Offered> {
        let mut all = Vec::new();
        offers.take(refused, |offered| all.push(offered));
        all
    }

    #[test]
    fn only_whole_offers_with_descriptors_are_taken() {
        let session = tempfile::tempdir().unwrap();
        let mut offers = Offers::listen(session.path(), 0o600).unwrap();
        let (file, offer) = (
            tempfile::tempfile().unwrap(),
            Offer {
                pid: std::process::id(),
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
        drop(connected(&session.path().join(SOCKET_FILE)));
        let ringless = Offer {
            data_size: 0,
            ..offer
        };
        send(session.path(), &ringless.to_bytes(), &[&file]);
        let mut refused = Vec::new();
        assert!(taken(&mut offers, &mut refused).is_empty());
        send(session.path(), &bytes, &[&file, &file]);
        let taken = taken(&mut offers, &mut refused);
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].offer, taken[0].events.len()), (offer, 2));
        let own = Sender {
            user: geteuid().as_raw(),
            is_process: true,
        };
        assert_eq!(taken[0].sender, own);
        send(session.path(), &ringless.to_bytes(), &[]);
        let heard = self::taken(&mut offers, &mut refused);
        assert_eq!((heard.len(), heard[0].events.len()), (1, 0));
        assert_eq!((heard[0].offer, heard[0].sender), (ringless, own));
        assert!(refused.is_empty(), "{refused:?}");
    }

    #[test]
    fn nobody_offers_a_ring_in_the_name_of_another_process() {
        let session = tempfile::tempdir().unwrap();
        let mut offers = Offers::listen(session.path(), 0o600).unwrap();
        let file = tempfile::tempfile().unwrap();
        let offer = Offer {
            pid: 1,
            process_key: 0x2b,
            data_size: 1 << 16,
            ..Offer::default()
        };
        let mut refused = Vec::new();
        send(session.path(), &offer.to_bytes(), &[&file]);
        assert!(taken(&mut offers, &mut refused).is_empty());
        assert!(
            refused[0].ends_with("in the name of process 1"),
            "{refused:?}"
        );
        // Who has the segment may be gone, or in another PID namespace.
        File::create(session.path().join("1.2b.seg")).unwrap();
        send(session.path(), &offer.to_bytes(), &[&file]);
        let taken = taken(&mut offers, &mut refused);
        assert_eq!(taken.len(), 1);
        assert!(!taken[0].sender.is_process);
    }

    #[test]
    fn a_message_that_is_on_its_way_is_waited_for_but_not_for_ever() {
        let session = tempfile::tempdir().unwrap();
        let mut offers = Offers::listen(session.path(), 0o600).unwrap();
        let silent = connected(&session.path().join(SOCKET_FILE));
        assert!(taken(&mut offers, &mut Vec::new()).is_empty());
        assert_eq!(offers.pending.len(), 1);
        for _ in 0..=PATIENCE {
            assert!(taken(&mut offers, &mut Vec::new()).is_empty());
        }
        assert!(offers.pending.is_empty(), "it has had its time");
        drop(silent);
    }
}
