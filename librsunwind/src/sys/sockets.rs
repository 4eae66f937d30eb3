//! Sending descriptors to a socket in the file system, and being sent one.
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

/// A time limit of a socket (`SO_RCVTIMEO`, `SO_SNDTIMEO`), ns; 0 if it has none, or is no socket.
pub fn socket_time_ns(fd: i32, option: i32) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes a struct timeval at most.
    if unsafe { socket_option(fd, option, time.as_mut_ptr().cast(), 16) }.is_err() {
        return 0;
    }
    let [seconds, microseconds] = time;
    let ns = seconds.saturating_mul(1_000_000_000);
    ns.saturating_add(microseconds.saturating_mul(1000))
}

/// The error that a socket has for the next call on it, which it has no more; 0 if it has none.
pub fn socket_error(fd: i32) -> i32 {
    let mut error = 0i32;
    // SAFETY: the kernel writes four bytes.
    let _ = unsafe { socket_option(fd, libc::SO_ERROR, (&raw mut error).cast(), 4) };
    error
}

/// Whether it is a socket of bytes without boundaries.
pub fn is_stream(fd: i32) -> bool {
    let mut kind = 0i32;
    // SAFETY: the kernel writes four bytes.
    let known = unsafe { socket_option(fd, libc::SO_TYPE, (&raw mut kind).cast(), 4) };
    known.is_ok() && kind == libc::SOCK_STREAM
}

/// # Safety
/// There is room for so many bytes.
unsafe fn socket_option(fd: i32, option: i32, value: *mut u8, size: u32) -> Result<(), Errno> {
    let mut size = size;
    // SAFETY: the caller's promise.
    unsafe {
        call!(
            libc::SYS_getsockopt,
            fd,
            libc::SOL_SOCKET,
            option,
            value,
            &raw mut size
        )
    }
    .map(drop)
}

/// Sends a message with at most eight descriptors to the `SOCK_SEQPACKET` socket at `path` (without
/// a zero byte), and closes the connection again. Does not wait.
///
/// # Errors
/// `ENOENT` or `ECONNREFUSED` if nobody listens, `EAGAIN` if too many wait, `ENAMETOOLONG`, and as
/// `socket(2)` and `sendmsg(2)`.
pub fn send_descriptors(path: &[u8], message: &[u8], descriptors: &[i32]) -> Result<(), Errno> {
    let socket = connect(path)?;
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

/// Sends a message to the `SOCK_SEQPACKET` socket at `path` (without a zero byte), and waits for a
/// descriptor in answer, and then for the end of the connection, each at most that long. Who
/// answers ends the connection when it has closed the descriptor itself: it is then the caller's
/// alone.
///
/// # Errors
/// As [`send_descriptors`]; `EAGAIN` if no answer or no end came in time, `ENODATA` if it has no
/// descriptor, `EINTR`.
pub fn ask_for_descriptor(path: &[u8], message: &[u8], patience_ms: u64) -> Result<File, Errno> {
    let socket = connect(path)?;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads the message.
    unsafe {
        call!(
            libc::SYS_sendto,
            socket.raw(),
            message.as_ptr(),
            message.len(),
            flags,
            0,
            0
        )
    }?;
    wait_for_input(&socket, patience_ms)?;
    let mut rights = Rights {
        length: 0,
        level: 0,
        kind: 0,
        descriptors: [-1; MOST],
    };
    let mut byte = 0u8;
    let vector = [(&raw mut byte) as usize, 1];
    // SAFETY: all zeros is a valid header.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = vector.as_ptr().cast_mut().cast();
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut rights).cast();
    header.msg_controllen = size_of::<Rights>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel writes into what the header points at, all of which lives here.
    unsafe { call!(libc::SYS_recvmsg, socket.raw(), &raw mut header, flags) }?;
    let one = offset_of!(Rights, descriptors).saturating_add(4);
    match rights.descriptors.first() {
        Some(descriptor)
            if rights.length == one
                && rights.kind == libc::SCM_RIGHTS
                && rights.level == libc::SOL_SOCKET =>
        {
            let file = File::from_raw(*descriptor);
            wait_for_input(&socket, patience_ms)?;
            Ok(file)
        }
        _ => Err(Errno(libc::ENODATA)),
    }
}

/// Waits for a message or the end of the connection.
fn wait_for_input(socket: &File, patience_ms: u64) -> Result<(), Errno> {
    let mut poll = [socket.raw() as u32, libc::POLLIN as u32];
    let mut time = [0u64, patience_ms.saturating_mul(1_000_000)];
    // SAFETY: the kernel reads and writes one pollfd and one timespec; the signal mask stays.
    let ready = unsafe {
        call!(
            libc::SYS_ppoll,
            poll.as_mut_ptr(),
            1,
            time.as_mut_ptr(),
            0,
            0
        )
    }?;
    if ready == 0 {
        return Err(Errno(libc::EAGAIN));
    }
    Ok(())
}

/// Connects to the socket at `path`, without waiting.
fn connect(path: &[u8]) -> Result<File, Errno> {
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
    Ok(socket)
}
