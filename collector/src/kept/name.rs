//! Names of recordings: the usual one, and what stands for something in those that a user gives.

use nix::sys::utsname::uname;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The file written when none is named.
pub(crate) const DEFAULT: &str = "rsunwind.rsu";

/// A name with `%p` (the program's pid), `%t` (seconds since 1970) and `%h` (this machine's name)
/// filled in; `%%` is `%`, and other letters stay as they are.
pub(crate) fn expanded(name: &Path, pid: u32) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = name.as_os_str().as_bytes();
    while let [first, behind @ ..] = rest {
        let filled_in = match rest {
            [b'%', b'%', ..] => Some(vec![b'%']),
            [b'%', b'p', ..] => Some(pid.to_string().into()),
            [b'%', b't', ..] => Some(now().to_string().into()),
            [b'%', b'h', ..] => Some(host().into_vec()),
            _ => None,
        };
        rest = match filled_in {
            Some(text) => {
                out.extend(text);
                &behind[1..]
            }
            None => {
                out.push(*first);
                behind
            }
        };
    }
    OsString::from_vec(out).into()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Of a name that could lead to another directory nothing is used.
fn host() -> OsString {
    let system = uname().ok();
    let name = system.map(|system| system.nodename().to_owned());
    let plain = name.filter(|name| !name.is_empty() && !name.as_bytes().contains(&b'/'));
    plain.unwrap_or_else(|| "host".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stand_for_what_they_say_and_others_for_themselves() {
        let name = |text: &str| expanded(Path::new(text), 71).to_string_lossy().into_owned();
        assert_eq!(name("a/%p.%%p.rsu"), "a/71.%p.rsu");
        assert_eq!(name("100%"), "100%");
        assert_eq!(name("%x%"), "%x%");
        let time: u64 = name("%t").parse().unwrap();
        assert!(time.abs_diff(now()) < 60);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(name("%h-"), format!("{}-", host.trim()));
    }
}
