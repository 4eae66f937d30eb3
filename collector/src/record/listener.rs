//! A socket in a session's directory, to which threads of its programs connect: each connection
//! brings one message. Everybody can read in `/proc/net/unix` which paths sockets have: it is bound
//! by another one than the directory's.
//!
//! Not here: the messages ([`super::rings`] takes offers of rings, [`super::event_requests`]
//! answers who asks for events).

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, listen, socket,
};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens there; `mode` says who may connect.
    ///
    /// # Errors
    /// As the calls; a path that is too long for a socket among them.
    pub fn open(path: &Path, mode: u32) -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = File::open(directory)?;
        let unspoken = format!("/proc/self/fd/{}", directory.as_raw_fd());
        bind(
            socket.as_raw_fd(),
            &UnixAddr::new(&Path::new(&unspoken).join(name))?,
        )?;
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        listen(&socket, Backlog::MAXCONN)?;
        Ok(Self(socket))
    }

    /// The next connection, if one waits.
    #[must_use]
    pub fn next(&self) -> Option<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let connection = accept4(self.0.as_raw_fd(), flags);
        connection.ok().map(owned)
    }
}

impl AsFd for Listener {
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

/// A client of a socket, for tests.
#[cfg(test)]
pub(super) fn connected(path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
    let client = socket(family, kind, SockFlag::empty(), None).unwrap();
    let address = UnixAddr::new(path).unwrap();
    nix::sys::socket::connect(client.as_raw_fd(), &address).unwrap();
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_socket_is_nowhere_to_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = Listener::open(&path, 0o600).unwrap();
        assert!(path.exists());
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let name = directory.path().file_name().unwrap().to_str().unwrap();
        assert!(!sockets.contains(name), "{sockets}");
    }
}
