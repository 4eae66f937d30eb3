//! Tells a service manager how it goes, as `sd_notify` does.

use crate::clock;
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Profiles are being made.
pub(super) fn ready() {
    say("READY=1");
}

/// Settings are read anew.
pub(super) fn reloading() {
    let now = clock::monotonic_ns() / 1000;
    say(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
}

/// It ends.
pub(super) fn stopping() {
    say("STOPPING=1");
}

/// Nobody may listen.
fn say(message: &str) {
    let _ = try_to_say(message);
}

fn try_to_say(message: &str) -> io::Result<()> {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let out = UnixDatagram::unbound()?;
    out.set_nonblocking(true)?;
    out.send_to_addr(message.as_bytes(), &address).map(drop)
}
