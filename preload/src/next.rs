//! The program's own functions behind the ones that this library stands in front of.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rsunwind::{loader, weak_address};

/// A function of the program, found on first use: another library's constructor may call us before
/// ours has run.
pub struct Next {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Next {
    /// A function of that name.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicUsize::new(0),
        }
    }

    /// Where the address is, for a shim: 0 until it is known.
    pub const ADDRESS: usize = core::mem::offset_of!(Self, address);

    /// Whether it has been looked for, and found.
    pub fn is_known(&self) -> bool {
        self.address.load(Relaxed) != 0
    }

    /// Its address; `None` if the program has no such function yet.
    #[inline]
    pub fn address(&self) -> Option<usize> {
        match self.address.load(Relaxed) {
            0 => self.found(),
            address => Some(address),
        }
    }

    #[cold]
    fn found(&self) -> Option<usize> {
        let address = look_up(self.name);
        self.address.store(address, Relaxed);
        (address != 0).then_some(address)
    }
}

/// Parts of libc before glibc 2.34, and libraries of its kind: a plug-in may bring them where
/// RTLD_NEXT does not look.
const ELSEWHERE: [&CStr; 3] = [c"libpthread.so.0", c"librt.so.1", c"libaio.so.1"];

fn look_up(name: &CStr) -> usize {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    type Dlopen = unsafe extern "C" fn(*const c_char, i32) -> *mut c_void;
    const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
    let (dlsym, dlopen) = (weak_address!("dlsym"), weak_address!("dlopen"));
    if dlsym == 0 || dlopen == 0 {
        return loader::next_function(look_up as *const () as usize, name).unwrap_or(0);
    }
    // `dlsym` waits for the loader's lock, which the constructor of a library that is being loaded
    // holds while it waits for the thread that calls us, or which nobody gives back in the child of
    // a fork.
    let found = loader::next_function_until(look_up as *const () as usize, dlsym, name);
    if let Some(found) = found {
        return found;
    }
    // SAFETY: the program's functions.
    let (dlsym, dlopen) = unsafe {
        let dlsym = core::mem::transmute::<usize, Dlsym>(dlsym);
        (dlsym, core::mem::transmute::<usize, Dlopen>(dlopen))
    };
    // SAFETY: as they are documented; nothing is loaded that is not there already.
    unsafe {
        let mut found = dlsym(RTLD_NEXT, name.as_ptr());
        for library in ELSEWHERE {
            if found.is_null() {
                let library = dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if !library.is_null() {
                    found = dlsym(library, name.as_ptr());
                }
            }
        }
        found as usize
    }
}

/// Declares functions that hand over to the program's function of the same name.
///
/// A thread that is cancelled, or calls `pthread_exit`, unwinds through our frames. Their ABI is
/// "C" all the same: with panic=abort the compiler gives "C-unwind" frames a landing pad that
/// aborts. A frame without one, but with unwind tables, is passed through, as one of a C compiler
/// is.
#[macro_export]
macro_rules! next {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $absent:expr;)*) => {
        #[allow(non_upper_case_globals)]
        pub mod next {
            $(pub static $name: $crate::next::Next = $crate::next::Next::new(
                // SAFETY: one zero byte, at the end.
                unsafe { core::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) });)*
        }
        $(
            $(#[$doc])*
            #[allow(clippy::too_many_arguments, non_snake_case)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                match next::$name.address() {
                    Some(address) => {
                        // SAFETY: the program's function has the signature that its manual page
                        // gives.
                        let function = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(address) };
                        // SAFETY: the caller's promise.
                        unsafe { function($($argument),*) }
                    }
                    None => $absent,
                }
            }
        )*
    };
}
