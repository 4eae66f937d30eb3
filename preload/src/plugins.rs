//! Plug-ins: libraries that know languages of programs which know nothing of us. `RSUNWIND_PLUGINS`
//! names them; `include/rsunwind.h` says what they are.
//!
//! They run with the program's rights, so only files are taken that nobody but root and its user
//! can have put there.

use crate::environment::PLUGINS_KEY;
use core::ffi::{CStr, c_char, c_int, c_void};
use rsunwind::environment::variable;
use rsunwind::error::Error;
use rsunwind::life::complaint::Line;
use rsunwind::modules::Auxiliary;
use rsunwind::sys::{self, Errno, File};
use rsunwind::text::{PATH_SIZE, Text};

mod real {
    use super::{c_char, c_int, c_void};
    crate::next! {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void = core::ptr::null_mut();
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void = core::ptr::null_mut();
        fn dlclose(handle: *mut c_void) -> c_int = -1;
        fn dlerror() -> *mut c_char = core::ptr::null_mut();
    }
}

/// The version of `struct rsunwind_plugin`, and of the functions that plug-ins call.
const VERSION: u32 = 2;

/// What [`Plugin::begin`] gives where it is of no use.
const UNUSED: c_int = 1;

/// `struct rsunwind_plugin`.
#[repr(C)]
struct Plugin {
    version: u32,
    unused: u32,
    begin: Option<unsafe extern "C" fn() -> c_int>,
}

/// Why a plug-in is left out.
enum Refusal<'a> {
    Relative,
    TooLong,
    Missing(Errno),
    /// The part of the path that others could change.
    Untrusted(&'a [u8]),
    /// What the loader says; null if it has no words.
    Unloadable(*const c_char),
    NoPlugin,
    Version(u32),
    Failed(c_int),
}

/// Loads the plug-ins that the environment names; says of each that is left out why.
#[inline(never)] // most programs have none, and some have little stack
pub fn load() {
    let Some(list) = variable(PLUGINS_KEY) else {
        return;
    };
    if Auxiliary::of_process().is_secure {
        return;
    }
    let paths = list.to_bytes().split(|byte| *byte == b':');
    for path in paths.filter(|path| !path.is_empty()) {
        if let Err(refusal) = load_one(path) {
            say(path, &refusal);
        }
    }
}

fn load_one(path: &[u8]) -> Result<(), Refusal<'_>> {
    if path.first() != Some(&b'/') {
        return Err(Refusal::Relative);
    }
    if path.len() >= PATH_SIZE {
        return Err(Refusal::TooLong);
    }
    trust(path)?;
    let mut terminated = Text::<PATH_SIZE>::new().then(path);
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
    // SAFETY: a C string. The library's constructors run, which who named it wants.
    let handle = unsafe { real::dlopen(terminated.path().as_ptr().cast(), flags) };
    if handle.is_null() {
        // SAFETY: no arguments.
        return Err(Refusal::Unloadable(unsafe { real::dlerror() }));
    }
    let begun = begin(handle);
    if !matches!(begun, Ok(true)) {
        // SAFETY: opened above, and not wanted.
        unsafe { real::dlclose(handle) };
    }
    begun.map(drop)
}

/// Whether root and this user alone say what is at a path: its own file, and each directory that
/// leads to it.
fn trust(path: &[u8]) -> Result<(), Refusal<'_>> {
    let is_end = |at: &usize| *at == path.len() || path.get(*at) == Some(&b'/');
    for end in (1..=path.len()).filter(is_end) {
        let part = path.get(..end).unwrap_or(path);
        let mut terminated = Text::<PATH_SIZE>::new().then(part);
        let file = File::open(terminated.path(), libc::O_PATH, 0).map_err(Refusal::Missing)?;
        if !file.is_trusted().map_err(Refusal::Missing)? {
            return Err(Refusal::Untrusted(part));
        }
    }
    Ok(())
}

/// Has a plug-in begin; `false` if it is of no use here.
fn begin(handle: *mut c_void) -> Result<bool, Refusal<'static>> {
    // SAFETY: a library that was just opened.
    let plugin = unsafe { real::dlsym(handle, c"rsunwind_plugin".as_ptr()) };
    // SAFETY: null, or what the header has it define; later versions begin with their number, too.
    let plugin = unsafe { plugin.cast::<Plugin>().as_ref() }.ok_or(Refusal::NoPlugin)?;
    if plugin.version != VERSION {
        return Err(Refusal::Version(plugin.version));
    }
    let begin = plugin.begin.ok_or(Refusal::NoPlugin)?;
    // SAFETY: as the header says.
    match unsafe { begin() } {
        0 => Ok(true),
        UNUSED => Ok(false),
        error => Err(Refusal::Failed(error)),
    }
}

fn say(path: &[u8], refusal: &Refusal<'_>) {
    let line = Line::new()
        .then(b"rsunwind: plug-in ")
        .then(path)
        .then(b" left out: ");
    let line = match refusal {
        Refusal::Relative => line.then(b"not an absolute path; name it from / on"),
        Refusal::TooLong => line.then(b"the path is too long"),
        Refusal::Missing(Errno(libc::ENOENT | libc::ENOTDIR)) => {
            line.then(b"no such file; see RSUNWIND_PLUGINS")
        }
        Refusal::Missing(errno) => line
            .then(b"it cannot be looked at, error ")
            .decimal(u64::from(errno.0.unsigned_abs())),
        Refusal::Untrusted(part) => line
            .then(part)
            .then(b" belongs to another user, or others may write to it"),
        // SAFETY: null, or the loader's text, which stays until the thread's next call.
        Refusal::Unloadable(words) => line.then(match unsafe { words.as_ref() } {
            // SAFETY: as above.
            Some(words) => unsafe { CStr::from_ptr(words) }.to_bytes(),
            None => b"it cannot be loaded",
        }),
        Refusal::NoPlugin => line.then(b"it defines no rsunwind_plugin"),
        Refusal::Version(version) => line
            .then(b"it is for version ")
            .decimal(u64::from(*version))
            .then(b" of plug-ins, this is version ")
            .decimal(u64::from(VERSION)),
        Refusal::Failed(error) => line.then(b"it gave up: ").then(
            Error::from_number(error.wrapping_neg())
                .map_or(c"unknown error", Error::words)
                .to_bytes(),
        ),
    };
    sys::write_stderr(line.then(b"\n").bytes());
}
