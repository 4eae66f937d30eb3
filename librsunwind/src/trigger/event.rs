//! Opening a perf event on the calling thread, and telling it what to do. What is sampled is in
//! [`super::perf`], what is asked of the kernel in [`engine::perf_event`].
//!
//! # Safety
//! System calls on our own structures.
#![allow(unsafe_code)]

use crate::sys::{Errno, File, call};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use engine::perf_event::{Attributes, OPEN_CLOEXEC, flag, request};

/// The kernel has refused to defer call chains, which it does for good.
static NEVER_DEFERS: AtomicBool = AtomicBool::new(false);

/// Opens an event of a thread ([`Attributes::of_thread`]) on the calling thread, on any processor;
/// where kernel mode is sampled with the kernel's cookies, if it has any.
///
/// # Signal safety
/// System calls, and an atomic that remembers their outcome.
///
/// # Errors
/// `EACCES` or `EPERM` where not permitted, `EMFILE`, `ENOMEM`, ….
pub fn open(attributes: &Attributes) -> Result<File, Errno> {
    if attributes.flags & flag::EXCLUDE_KERNEL == 0 && !NEVER_DEFERS.load(Relaxed) {
        match attempt(&attributes.deferring()) {
            Err(Errno(libc::EINVAL)) => {}
            result => return result,
        }
        // Either the kernel does not know it, or something else is wrong, which shows now.
        let plain = open_on_older_kernels(attributes)?;
        NEVER_DEFERS.store(true, Relaxed);
        return Ok(plain);
    }
    open_on_older_kernels(attributes)
}

fn open_on_older_kernels(attributes: &Attributes) -> Result<File, Errno> {
    let mut opened = Err(Errno(libc::EINVAL));
    for attributes in &attributes.and_for_older_kernels() {
        if matches!(opened, Err(Errno(libc::EINVAL))) {
            opened = attempt(attributes);
        }
    }
    opened
}

fn attempt(attributes: &Attributes) -> Result<File, Errno> {
    // SAFETY: the kernel reads the attributes; 0 is the calling thread, -1 any processor, -1 no
    // group.
    let fd = unsafe {
        call!(
            libc::SYS_perf_event_open,
            core::ptr::from_ref(attributes),
            0,
            -1isize,
            -1isize,
            OPEN_CLOEXEC
        )
    }?;
    Ok(File::from_raw(fd as i32))
}

/// Starts an event.
///
/// # Errors
/// As the ioctl.
pub fn enable(event: &File) -> Result<(), Errno> {
    // SAFETY: no memory involved.
    unsafe { call!(libc::SYS_ioctl, event.raw(), request::ENABLE, 0) }.map(drop)
}

/// Lets an event write into the ring of another, which must be mapped; it must not be itself.
///
/// # Errors
/// `EINVAL` for events whose output cannot be shared (other clock, and before Linux 6.2 software
/// with hardware events).
pub fn write_into(event: &File, owner: &File) -> Result<(), Errno> {
    // SAFETY: no memory involved.
    unsafe {
        call!(
            libc::SYS_ioctl,
            event.raw(),
            request::SET_OUTPUT,
            owner.raw()
        )
    }
    .map(drop)
}

/// The number that an event's records carry.
///
/// # Errors
/// As the ioctl.
pub fn id(event: &File) -> Result<u64, Errno> {
    let mut id = 0u64;
    // SAFETY: the kernel writes one word.
    unsafe { call!(libc::SYS_ioctl, event.raw(), request::ID, &raw mut id) }?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::perf_event::{kind, software};

    #[test]
    fn whether_the_kernel_defers_is_found_out_by_the_first_event() {
        let event = Attributes::of_thread(kind::SOFTWARE, software::TASK_CLOCK, 1 << 40, true);
        if let Err(Errno(libc::EACCES | libc::EPERM)) = attempt(&event) {
            eprintln!("LEFT OUT: no permission to sample the kernel");
            return;
        }
        open(&event).expect("an event, deferring or not");
        let refused = matches!(attempt(&event.deferring()), Err(Errno(libc::EINVAL)));
        assert_eq!(NEVER_DEFERS.load(Relaxed), refused);
        open(&event).expect("another");
        let user_only = Attributes::of_thread(kind::SOFTWARE, software::TASK_CLOCK, 1 << 40, false);
        open(&user_only).expect("nothing is deferred in user mode");
    }
}
