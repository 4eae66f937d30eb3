//! The session that a collector runs: whether it is still wanted that this process samples itself.
//!
//! # Safety
//! The control page is mapped once, read-only, and stays.
#![allow(unsafe_code)]

use crate::sys::{self, Errno, File, PAGE};
use crate::text::{PATH_SIZE, Text};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use engine::wire::file::VERSION;
use engine::wire::session::{
    self as wire, CONTROL_FILE, CONTROL_MAGIC, HEARTBEAT_LIMIT_NS, Orders,
};

static CONTROL: AtomicPtr<wire::Control> = AtomicPtr::new(ptr::null_mut());

/// Why a session could not be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// It is over, or its directory is gone.
    Over,
    /// Its directory cannot be used.
    Refused(Errno),
}

/// Joins the session of that directory. Gives whether it is of the process's own user.
///
/// # Errors
/// See [`AttachError`].
pub fn attach(directory: Text<PATH_SIZE>) -> Result<bool, AttachError> {
    let mut path = directory.then(b"/").then(CONTROL_FILE.as_bytes());
    let file =
        File::open(path.path(), libc::O_RDONLY | libc::O_NOFOLLOW, 0).map_err(
            |error| match error.0 {
                libc::ENOENT | libc::ENOTDIR => AttachError::Over,
                _ => AttachError::Refused(error),
            },
        )?;
    let size = file.size().map_err(AttachError::Refused)?;
    if size < size_of::<wire::Control>() as u64 {
        return Err(AttachError::Refused(Errno(libc::EINVAL)));
    }
    let page = sys::map_file(&file, 0, PAGE, false, 0)
        .map_err(AttachError::Refused)?
        .cast::<wire::Control>();
    // SAFETY: a page-aligned mapping of a file that has these bytes.
    let control = unsafe { &*page };
    if control.magic.load(Acquire) != CONTROL_MAGIC || control.version.load(Relaxed) != VERSION {
        return Err(AttachError::Refused(Errno(libc::EPROTO)));
    }
    CONTROL.store(page, Release);
    if Control::over() {
        Err(AttachError::Over)
    } else {
        file.is_own().map_err(AttachError::Refused)
    }
}

/// The session's control page.
#[derive(Debug)]
pub struct Control;

impl Control {
    /// Whether there was a session and it has ended.
    pub fn over() -> bool {
        Self::page().is_some_and(|control| control.state.load(Relaxed) != wire::RUNNING)
    }

    /// Like [`Control::over`], and whether its collector has died without saying so.
    ///
    /// # Signal safety
    /// Two loads; a system call if the heartbeat is late.
    pub fn over_at(now_ns: u64) -> bool {
        let Some(control) = Self::page() else {
            return false;
        };
        if control.state.load(Relaxed) != wire::RUNNING {
            return true;
        }
        let late = now_ns.saturating_sub(control.heartbeat_ns.load(Relaxed)) > HEARTBEAT_LIMIT_NS;
        late && !sys::process_exists(control.collector_pid.load(Relaxed))
    }

    /// What is asked for since the program began.
    pub fn orders() -> Orders {
        let packed = Self::page().map_or(0, |control| control.orders.load(Relaxed));
        Orders::unpack(packed)
    }

    fn page() -> Option<&'static wire::Control> {
        // SAFETY: null or the mapping made by `attach`, which stays.
        unsafe { CONTROL.load(Acquire).as_ref() }
    }
}
