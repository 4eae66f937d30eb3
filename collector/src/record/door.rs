//! A socket in a session's directory, at which threads of its programs knock: each connection brings one message.
//!
//! Not here: the messages ([`super::rings`] takes offers of rings, [`super::petitions`] hears who asks for events).

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, listen, socket,
};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The socket.
#[derive(Debug)]
pub struct Door(OwnedFd);

impl Door {
    /// Listens there; `mode` says who may connect.
    ///
    /// # Errors
    /// As the calls; a path that is too long for a socket among them.
    pub fn open(path: &Path, mode: u32) -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        listen(&socket, Backlog::MAXCONN)?;
        Ok(Self(socket))
    }

    /// The next connection, if one waits.
    #[must_use]
    pub fn next(&self) -> Option<OwnedFd> {
        let connection = accept4(self.0.as_raw_fd(), SockFlag::SOCK_CLOEXEC);
        connection.ok().map(owned)
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes over a descriptor that the kernel just gave.
#[expect(
    unsafe_code,
    reason = "the number is fresh from the kernel and nobody else's"
)]
pub fn owned(descriptor: i32) -> OwnedFd {
    // SAFETY: see above.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
