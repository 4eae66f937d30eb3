//! Sending descriptors to a socket in the file system.
#![allow(unsafe_code)]

use super::{Errno, File, call};
use core::mem::offset_of;

/// Most descriptors sent at once.
const MOST: usize = 8;

/// A control message with descriptors.
#[repr(C)]
struct Rights {
    length: usize,
    level: i32,
    kind: i32,
    descriptors: [i32; MOST],
}

/// Sends a message with at most eight descriptors to the `SOCK_SEQPACKET` socket at `path` (without a zero byte), and closes the connection again. Does
/// not wait.
///
/// # Errors
/// `ENOENT` or `ECONNREFUSED` if nobody listens, `EAGAIN` if too many wait, `ENAMETOOLONG`, and as `socket(2)` and `sendmsg(2)`.
pub fn send_descriptors(path: &[u8], message: &[u8], descriptors: &[i32]) -> Result<(), Errno> {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let room = address.sun_path.len();
    if path.len() >= room {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let length = offset_of!(libc::sockaddr_un, sun_path)
        .saturating_add(path.len())
        .saturating_add(1);
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory involved; a fresh descriptor.
    let socket = unsafe { call!(libc::SYS_socket, libc::AF_UNIX, kind, 0) }?;
    let socket = File::from_raw(socket as i32);
    // SAFETY: the kernel reads the address.
    unsafe { call!(libc::SYS_connect, socket.raw(), &raw const address, length) }?;
    let bytes = descriptors.len().min(MOST).saturating_mul(4);
    let mut rights = Rights {
        length: offset_of!(Rights, descriptors).saturating_add(bytes),
        level: libc::SOL_SOCKET,
        kind: libc::SCM_RIGHTS,
        descriptors: [-1; MOST],
    };
    for (to, from) in rights.descriptors.iter_mut().zip(descriptors) {
        *to = *from;
    }
    let vector = [message.as_ptr() as usize, message.len()];
    // SAFETY: all zeros is a valid header.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = vector.as_ptr().cast_mut().cast();
    header.msg_iovlen = 1;
    header.msg_control = (&raw const rights).cast_mut().cast();
    header.msg_controllen = rights.length.next_multiple_of(8) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads the header and what it points at, all of which lives here.
    unsafe { call!(libc::SYS_sendmsg, socket.raw(), &raw const header, flags) }.map(drop)
}
