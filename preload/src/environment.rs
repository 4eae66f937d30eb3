//! The environment: what this process was given, and what programs that it starts are given.
//!
//! A program started with a fresh environment gets our variables again (unless `follow=no`); one
//! that could not load the library (32-bit, with a runtime that must come first, or the library out
//! of reach after chroot) gets none, because its loader would complain.

use crate::interpose::strict;
use crate::program_file::takes_library;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rsunwind::environment::{self, SETTINGS_KEY, Strings, environ, strings};
use rsunwind::process::PROCESS;
use rsunwind::sys;
use rsunwind::text::Text;

/// `LD_PRELOAD=…`, `RSUNWIND=…` and `RSUNWIND_PLUGINS=…` (if it was) as this process was given
/// them, and the library's own path: copies of our own, made once.
static PRELOAD: AtomicUsize = AtomicUsize::new(0);
static SETTINGS: AtomicUsize = AtomicUsize::new(0);
static PLUGINS: AtomicUsize = AtomicUsize::new(0);
static LIBRARY: AtomicUsize = AtomicUsize::new(0);
/// `RSUNWIND=…` with the cost of an event, if this process has measured it: those that it starts
/// need not.
static MEASURED: AtomicUsize = AtomicUsize::new(0);

const PRELOAD_KEY: &[u8] = b"LD_PRELOAD=";
/// What names plug-ins.
pub const PLUGINS_KEY: &[u8] = b"RSUNWIND_PLUGINS=";
const LIBRARY_NAME: &[u8] = b"rsunwind_preload";

/// Of this process's environment, or one that the caller of [`Environment::for_program`] promises
/// to be one.
fn find(array: Strings, key: &[u8]) -> Option<&'static CStr> {
    // SAFETY: as said.
    unsafe { environment::find(array, key) }
}

/// So many bytes of copies need no page of their own.
const NEAR: usize = 1024;

struct Copies(UnsafeCell<[u8; NEAR]>);

// SAFETY: written once, in the constructor.
unsafe impl Sync for Copies {}

static COPIES: Copies = Copies(UnsafeCell::new([0; NEAR]));

/// Copies our variables, so that later programs can be given them.
pub fn remember() {
    let (Some(preload), Some(settings)) =
        (find(environ(), PRELOAD_KEY), find(environ(), SETTINGS_KEY))
    else {
        return;
    };
    let value = preload.to_bytes().get(PRELOAD_KEY.len()..).unwrap_or(&[]);
    let library = value
        .split(|byte| matches!(byte, b':' | b' '))
        .find(|path| names_us(path))
        .unwrap_or(&[]);
    let plugins = find(environ(), PLUGINS_KEY).map_or(&[][..], CStr::to_bytes);
    let texts = [
        (preload.to_bytes(), &PRELOAD),
        (settings.to_bytes(), &SETTINGS),
        (library, &LIBRARY),
        (plugins, &PLUGINS),
    ];
    let size = texts.iter().map(|(bytes, _)| bytes.len() + 1).sum();
    let memory = match size {
        ..=NEAR => Ok(COPIES.0.get().cast()),
        _ => sys::map_anonymous(size),
    };
    let Ok(mut at) = memory else {
        return;
    };
    for (bytes, place) in texts {
        place.store(at as usize, Relaxed);
        // SAFETY: `size` has room for all of them and their zero bytes, which the memory already
        // holds.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            at = at.add(bytes.len() + 1);
        }
    }
}

/// Adds the cost of an event, ns, to the settings that later programs are given.
pub fn remember_cost(nanoseconds: u64) {
    const KEY: &[u8] = b",cost=";
    let Some(settings) = remembered(&SETTINGS) else {
        return;
    };
    let number = Text::<24>::new().decimal(nanoseconds);
    let parts = [settings.to_bytes(), KEY, number.bytes()];
    let size = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
    let Ok(memory) = sys::map_anonymous(size) else {
        return;
    };
    let mut at = memory;
    for part in parts {
        // SAFETY: `size` has room for all parts and a zero byte, which the mapping already holds.
        unsafe {
            ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
            at = at.add(part.len());
        }
    }
    MEASURED.store(memory as usize, Relaxed);
}

fn names_us(path: &[u8]) -> bool {
    path.windows(LIBRARY_NAME.len())
        .any(|part| part == LIBRARY_NAME)
}

fn remembered(place: &AtomicUsize) -> Option<&'static CStr> {
    let address = place.load(Relaxed);
    // SAFETY: set only by `remember`, to a zero-terminated copy that stays.
    (address != 0).then(|| unsafe { CStr::from_ptr(address as *const c_char) })
}

/// An environment for a program to be started; its memory is given back when it is dropped.
pub struct Environment {
    strings: Strings,
    mapping: *mut u8,
    size: usize,
}

impl Environment {
    /// What to pass.
    pub fn strings(&self) -> Strings {
        self.strings
    }

    fn unchanged(strings: Strings) -> Self {
        Self {
            strings,
            mapping: ptr::null_mut(),
            size: 0,
        }
    }

    /// The environment in which a program should start that the program wants to start with
    /// `given`. `path` names it, if known.
    ///
    /// # Safety
    /// `given` is a null-terminated array of strings, or null.
    pub unsafe fn for_program(given: Strings, path: Option<&CStr>) -> Self {
        let (Some(preload), Some(settings)) = (remembered(&PRELOAD), remembered(&SETTINGS)) else {
            return Self::unchanged(given);
        };
        let has_preload =
            find(given, PRELOAD_KEY).is_some_and(|string| names_us(string.to_bytes()));
        let given_settings = find(given, SETTINGS_KEY);
        // The same as ours, and less than we know by now.
        let lacks_cost = remembered(&MEASURED).is_some()
            && given_settings.is_some_and(|given| given == settings);
        let settings = remembered(&MEASURED).unwrap_or(settings);
        let wanted = PROCESS.was_started() && PROCESS.config().follow;
        let loadable = remembered(&LIBRARY).is_some_and(readable)
            && path.is_none_or(takes_library)
            && strict::may_start();
        match (has_preload, loadable) {
            (true, false) => Self::rewrite(given, None, None),
            (false, true) if wanted => Self::rewrite(given, Some(preload), Some(settings)),
            (true, true) if wanted && (given_settings.is_none() || lacks_cost) => {
                Self::rewrite(given, None, Some(settings))
            }
            _ => Self::unchanged(given),
        }
    }

    /// Copies `given` without the variables that are replaced (both, if neither is given), and with
    /// `preload` and `settings` if given. The program's own other preloads keep their place behind
    /// ours. Plug-ins are added where it names none.
    fn rewrite(given: Strings, preload: Option<&CStr>, settings: Option<&CStr>) -> Self {
        let strip = preload.is_none() && settings.is_none();
        let plugins = remembered(&PLUGINS)
            .filter(|plugins| !strip && !plugins.is_empty() && find(given, PLUGINS_KEY).is_none());
        let replaces = strip || preload.is_some();
        // SAFETY: `for_program`'s caller's promise.
        let count = unsafe { strings(given) }.count();
        let theirs = find(given, PRELOAD_KEY).map_or(&[][..], |string| {
            string.to_bytes().get(PRELOAD_KEY.len()..).unwrap_or(&[])
        });
        let text =
            PRELOAD_KEY.len() + theirs.len() + preload.map_or(0, |string| string.count_bytes()) + 2;
        let size = (count + 4) * size_of::<usize>() + text;
        let Ok(mapping) = sys::map_anonymous(size) else {
            return Self::unchanged(given);
        };
        let list = mapping.cast::<*const c_char>();
        let mut used = 0usize;
        let mut push = |string: *const c_char| {
            // SAFETY: at most `count` + 3 strings are pushed, and the last slot stays null.
            unsafe { *list.add(used) = string };
            used += 1;
        };
        // SAFETY: as above.
        for string in unsafe { strings(given) } {
            let bytes = string.to_bytes();
            let replaced = bytes.starts_with(PRELOAD_KEY) && replaces;
            let dropped =
                replaced || (bytes.starts_with(SETTINGS_KEY) && (strip || settings.is_some()));
            if !dropped {
                push(string.as_ptr());
            }
        }
        // SAFETY: the text starts behind the slots.
        let at = unsafe { mapping.add((count + 4) * size_of::<usize>()) };
        let ours = preload.map(|string| string.to_bytes());
        let others = if strip { without_us(theirs) } else { theirs };
        if replaces && join(at, ours, others) {
            push(at.cast());
        }
        for string in [settings, plugins].into_iter().flatten() {
            push(string.as_ptr());
        }
        Self {
            strings: list.cast(),
            mapping,
            size,
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if self.size != 0 {
            // SAFETY: made by `rewrite`; the program it was for has not started, or has its own
            // copy.
            unsafe { sys::unmap(self.mapping, self.size) };
        }
    }
}

/// What a preload list names besides us, if we are its first entry, as we always put it.
fn without_us(list: &[u8]) -> &[u8] {
    match list.iter().position(|byte| matches!(byte, b':' | b' ')) {
        Some(end) if names_us(list.get(..end).unwrap_or(&[])) => list.get(end + 1..).unwrap_or(&[]),
        None if names_us(list) => &[],
        _ => list,
    }
}

/// Writes `LD_PRELOAD=` with our entry and the others; `false` if there is nothing to say.
fn join(at: *mut u8, ours: Option<&[u8]>, others: &[u8]) -> bool {
    let mut length = 0usize;
    let mut put = |bytes: &[u8]| {
        // SAFETY: `rewrite` made room for all pieces.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(length), bytes.len()) };
        length += bytes.len();
    };
    match ours {
        Some(ours) => {
            put(ours);
            if !others.is_empty() {
                put(b":");
            }
        }
        None if others.is_empty() => return false,
        None => put(PRELOAD_KEY),
    }
    put(others);
    true
}

fn readable(path: &CStr) -> bool {
    sys::File::open(path.to_bytes_with_nul(), libc::O_RDONLY, 0).is_ok()
}
