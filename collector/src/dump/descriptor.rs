//! Open files of a process by name: paths, sockets with both ends, what an epoll watches, and who
//! has a file locked.

use crate::intern::HashMap;
use crate::visible::visible;
use std::cell::OnceCell;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;

/// What a descriptor is: `3: /var/log/x`, `4: TCP 127.0.0.1:80 - 127.0.0.1:4242`.
pub(super) fn name(pid: u32, sockets: &Sockets, fd: u64) -> Option<String> {
    let fd = fd as u32;
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    let link = link.to_string_lossy();
    let number = |kind: &str| {
        link.strip_prefix(kind)?
            .strip_prefix(":[")?
            .strip_suffix(']')
    };
    let what = match number("socket") {
        Some(inode) => sockets.name(pid, inode),
        None => match link.strip_prefix("anon_inode:") {
            Some(kind) => kind.trim_matches(['[', ']']).to_owned(),
            None if number("pipe").is_some() => "a pipe".to_owned(),
            None => visible(&link).into_owned(),
        },
    };
    Some(format!("{fd}: {what}"))
}

/// The descriptors that an epoll watches.
pub(super) fn watched(pid: u32, epoll: u64) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", epoll as u32));
    let text = text.unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
    lines
        .filter_map(|line| line.split_ascii_whitespace().next()?.parse().ok())
        .collect()
}

/// Processes that have a lock on the file.
pub(super) fn lock_holders(pid: u32, fd: u64) -> Vec<i32> {
    let Ok(file) = fs::metadata(format!("/proc/{pid}/fd/{}", fd as u32)) else {
        return Vec::new();
    };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    holders(&locks, file.ino())
}

/// Lines `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`; of those who wait `1: -> FLOCK …`.
fn holders(locks: &str, inode: u64) -> Vec<i32> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, _, _, pid, place, ..] = words[..] else {
            return None;
        };
        let is_it = words[1] != "->" && place.rsplit(':').next() == Some(&*inode.to_string());
        is_it.then(|| pid.parse().ok()).flatten()
    };
    locks.lines().filter_map(line).collect()
}

/// The sockets of a process's network namespace by inode, from the kernel's tables of them, which
/// are read once, when the first is asked for.
#[derive(Debug, Default)]
pub(super) struct Sockets(OnceCell<HashMap<String, String>>);

impl Sockets {
    fn name(&self, pid: u32, inode: &str) -> String {
        let all = self.0.get_or_init(|| read(pid));
        let name = all.get(inode).map_or("a socket", String::as_str);
        name.to_owned()
    }
}

fn read(pid: u32) -> HashMap<String, String> {
    let table =
        |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let mut all = HashMap::default();
    for (file, kind) in [
        ("tcp", "TCP"),
        ("tcp6", "TCP"),
        ("udp", "UDP"),
        ("udp6", "UDP"),
    ] {
        let table = table(file);
        let sockets = table.lines().filter_map(internet);
        all.extend(sockets.map(|(inode, ends)| (inode.to_owned(), format!("{kind} {ends}"))));
    }
    let table = table("unix");
    let sockets = table.lines().filter_map(local);
    all.extend(sockets.map(|(inode, path)| {
        let name = match path {
            "" => "a Unix socket".to_owned(),
            path => format!("Unix socket {}", visible(path)),
        };
        (inode.to_owned(), name)
    }));
    all
}

/// A line `0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 INODE …`.
fn internet(line: &str) -> Option<(&str, String)> {
    const LISTENS: &str = "0A";
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let inode = *words.get(9)?;
    let own = address(words[1])?;
    let ends = match (words[3], address(words[2])) {
        (LISTENS, _) => format!("{own}, listening"),
        (_, Some(other)) if !other.ends_with(":0") => format!("{own} - {other}"),
        _ => own,
    };
    Some((inode, ends))
}

/// `0100007F:1F90`: words of the address as they lie in memory, and a port.
fn address(text: &str) -> Option<String> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| u32::from_str_radix(address.get(index * 8..index * 8 + 8)?, 16).ok();
    let first = word(0)?.to_ne_bytes();
    if address.len() == 8 {
        return Some(format!("{}:{port}", Ipv4Addr::from(first)));
    }
    let mut bytes = [0; 16];
    for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
        part.copy_from_slice(&word(index)?.to_ne_bytes());
    }
    Some(match Ipv6Addr::from(bytes) {
        address if address.to_ipv4_mapped().is_some() => {
            format!("{}:{port}", address.to_ipv4_mapped()?)
        }
        address => format!("[{address}]:{port}"),
    })
}

/// A line `ffff…: 00000002 00000000 00010000 0001 01 INODE PATH`.
fn local(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_ascii_whitespace().skip(6);
    Some((words.next()?, words.next().unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let tcp = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 x\n   1: 0100007F:1F90 0200007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 78 1 x\n";
        let sockets: Vec<_> = tcp.lines().filter_map(internet).collect();
        let expected = [
            ("77", "127.0.0.1:8080, listening"),
            ("78", "127.0.0.1:8080 - 127.0.0.2:80"),
        ];
        assert_eq!(
            sockets,
            expected.map(|(inode, ends)| (inode, ends.to_owned()))
        );
        let six = "00000000000000000000000001000000:0016";
        assert_eq!(address(six).as_deref(), Some("[::1]:22"));
        let unix = "Num RefCount\nffff: 00000002 00000000 00010000 0001 01 99 /run/x\nffff: 00000002 00000000 00000000 0001 03 98\n";
        let sockets: Vec<_> = unix.lines().filter_map(local).collect();
        assert_eq!(sockets, [("99", "/run/x"), ("98", "")]);
        let locks = "1: FLOCK  ADVISORY  WRITE 12 08:01:56 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 13 08:01:56 0 EOF\n2: POSIX  ADVISORY  WRITE 14 08:01:57 0 EOF\n";
        assert_eq!(holders(locks, 56), [12]);
    }
}
