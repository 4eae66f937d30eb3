//! The socket on which threads offer their perf rings: who connects is heard out, for a moment, and nobody is answered.
//!
//! A message and its descriptors come from a profiled process and may be anything; what does not check is dropped.

use engine::wire::offer::{MAX_EVENTS, Offer, SIZE, SOCKET_FILE};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept4,
    bind, listen, recvmsg, socket,
};
use std::fs::{self, Permissions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
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
    socket: OwnedFd,
    /// Connections without a message yet, and how many more looks they are given.
    pending: Vec<(OwnedFd, u8)>,
}

impl Offers {
    /// Listens in a session's directory.
    ///
    /// # Errors
    /// As the calls; a path that is too long for a socket among them.
    pub fn listen(session: &Path, mode: u32) -> io::Result<Self> {
        let path = session.join(SOCKET_FILE);
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(socket.as_raw_fd(), &UnixAddr::new(&path)?)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        listen(&socket, Backlog::MAXCONN)?;
        Ok(Self {
            socket,
            pending: Vec::new(),
        })
    }

    /// What was offered since the last look.
    pub fn taken(&mut self) -> Vec<(Offer, Vec<OwnedFd>)> {
        let mut offers = Vec::new();
        let mut waiting = std::mem::take(&mut self.pending);
        for _ in 0..MOST_AT_ONCE {
            let Ok(connection) = accept4(self.socket.as_raw_fd(), SockFlag::SOCK_CLOEXEC) else {
                break;
            };
            waiting.push((owned(connection), PATIENCE));
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

/// Takes over a descriptor that the kernel just gave.
#[expect(
    unsafe_code,
    reason = "the number is fresh from the kernel and nobody else's"
)]
fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: see above.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
