//! Fork children of processes that the library was brought into: they have it, too, and it does
//! nothing there. It is taken away from them, after which it can be brought in as into any process.
//!
//! # Safety
//! One system call without memory.
#![allow(unsafe_code)]

use super::image::Image;
use super::place::Place;
use super::{Refusal, auxiliary, find};
use nix::libc;
use std::time::Duration;

/// What a child was found to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inheritance {
    /// Nothing of this recording's: it runs another program by now.
    Nothing,
    /// The library, which is gone now; where the kernel's code is in that program.
    Taken(Option<u64>),
    /// The memory itself, until it ends or runs another program (vfork).
    Shared,
}

impl Inheritance {
    /// Whether the process still runs the program that the library was taken from.
    pub(crate) fn is_of(self, pid: u32) -> bool {
        // Each program has it elsewhere.
        matches!(self, Self::Taken(vdso) if vdso == auxiliary::auxiliary(pid, auxiliary::AT_SYSINFO_EHDR))
    }
}

/// Takes away from a fork child what this recording has brought into one of `others`.
///
/// # Errors
/// [`Refusal`] if that cannot be, or no thread of it may be held just now; then what is there does
/// nothing.
pub(crate) fn disinherit(
    pid: u32,
    mut others: impl Iterator<Item = u32>,
    patience: Duration,
) -> Result<Inheritance, Refusal> {
    let vdso = auxiliary::auxiliary(pid, auxiliary::AT_SYSINFO_EHDR);
    let own = std::process::id().cast_signed();
    let Some((base, found)) = find(pid) else {
        return Ok(Inheritance::Nothing);
    };
    if !found.is_ours || found.recorder != own {
        return Ok(Inheritance::Nothing);
    }
    if others.any(|other| other != pid && may_share_memory(pid, other)) {
        return Ok(Inheritance::Shared);
    }
    let image = Image::read().ok_or(Refusal::Library)?;
    let place = Place {
        image: &image,
        base,
    };
    match place.leave_child(pid, patience) {
        Ok(()) => Ok(Inheritance::Taken(vdso)),
        // It has ended, or begun another program, while we were at it.
        Err(_) if find(pid).is_none() => Ok(Inheritance::Nothing),
        Err(refusal) => Err(refusal),
    }
}

/// Whether it cannot be excluded that two processes have the same memory.
fn may_share_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: no memory is involved.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) };
    match order {
        0 => true,
        1.. => false,
        // One of them is gone, or the kernel cannot tell.
        _ => nix::errno::Errno::last() != nix::errno::Errno::ESRCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inside::apart::apart;
    use std::process::{Command, Stdio};

    #[test]
    fn who_shares_memory_is_told_from_who_does_not() {
        let own = std::process::id();
        // As after vfork.
        let child = apart(std::process::id).unwrap().unwrap();
        assert!(!may_share_memory(own, child), "it is gone");
        let shared = apart(|| may_share_memory(std::process::id(), own));
        assert_eq!(shared, Ok(Some(true)));
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!may_share_memory(other.id(), own));
        let found = disinherit(other.id(), [own].into_iter(), Duration::ZERO);
        assert_eq!(found.unwrap(), Inheritance::Nothing);
        drop(other.stdin.take());
        other.wait().unwrap();
    }
}
