//! The library that an interpreter is linked with: the functions of `include/rsunwind.h` and
//! nothing else. `linked/install` makes `librsunwind.so` and `librsunwind.a` of it.
//!
//! It stands in front of no function of libc. Where the preload library is in the program too, that
//! one does the work: every function here leads to its namesake there, so that the process has one
//! runtime, and what the program registers is known to it. A program that it is not in, as nothing
//! is preloaded to static ones, records itself ([`linked`]).
#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

#[path = "../../preload/src/memory_functions.rs"]
mod memory_functions;

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rsunwind::environment::{SETTINGS_KEY, variable};
use rsunwind::interface::{Functions, clients, languages, regions};
use rsunwind::life::{linked, process};
use rsunwind::modules::Auxiliary;
use rsunwind::weak_address;
use rsunwind::wire::file::VERSION;
use rsunwind::wire::thread::ThreadEndReason;

macro_rules! export {
    ($($name:ident = $function:path,)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "endbr64",
                    "mov rax, qword ptr [rip + {preloaded}]",
                    "test rax, rax",
                    "jz 2f",
                    "jmp rax",
                    "2: jmp {own}",
                    preloaded = sym preloaded::$name,
                    own = sym $function,
                )
            }
        )*

        /// Where the preload library has each function; 0 without it.
        #[allow(non_upper_case_globals, reason = "they have the functions' names")]
        mod preloaded {
            use core::sync::atomic::AtomicUsize;
            $(pub static $name: AtomicUsize = AtomicUsize::new(0);)*
        }

        static PRELOADED: &[&AtomicUsize] = &[$(&preloaded::$name),*];
    };
}

rsunwind::for_each_function!(export);

/// Before the program's own constructors, which may register something. The preload library is
/// loaded by then, if it is there.
#[used]
#[unsafe(link_section = ".init_array.00100")]
static CONSTRUCTOR: extern "C" fn() = construct;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destruct;

/// By which the collector knows of a static program that this library is in it: an ELF note.
#[used]
#[unsafe(link_section = ".note.rsunwind.linked")]
static NOTE: Note = Note {
    name_size: NAME.len() as u32,
    size: 4,
    kind: 1,
    name: *NAME,
    version: VERSION,
};

const NAME: &[u8; 16] = b"rsunwind-linked\0";

#[repr(C)]
struct Note {
    name_size: u32,
    size: u32,
    kind: u32,
    name: [u8; NAME.len()],
    version: u32,
}

extern "C" fn construct() {
    if yield_to_preloaded() {
        return;
    }
    // A program with AddressSanitizer's runtime is known to have no preload library: it is copied.
    if let (0, Some(settings)) = (weak_address!("__asan_init"), variable(SETTINGS_KEY)) {
        linked::start(settings.to_bytes(), Auxiliary::of_process());
    }
}

extern "C" fn destruct() {
    process::end(ThreadEndReason::ProcessExit);
}

/// Has the preload library's functions called, if it has them all: an older one may not. Gives
/// whether it is there.
fn yield_to_preloaded() -> bool {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    let dlsym = weak_address!("dlsym");
    if dlsym == 0 {
        return false; // a static program, which nothing is preloaded to
    }
    // SAFETY: the program's function, with that signature; the preload library alone has a symbol
    // of that name.
    let found = unsafe {
        let dlsym = core::mem::transmute::<usize, Dlsym>(dlsym);
        dlsym(RTLD_DEFAULT, c"rsunwind_preloaded_2".as_ptr()).cast::<Functions<0>>()
    };
    // SAFETY: null or what that library has there, for good.
    let Some(functions) = (unsafe { found.as_ref() }) else {
        return false;
    };
    if functions.count < PRELOADED.len() {
        return true;
    }
    for (index, place) in PRELOADED.iter().enumerate() {
        // SAFETY: there are as many.
        let function = unsafe { *functions.all.as_ptr().add(index) };
        place.store(function as usize, Relaxed);
    }
    true
}

#[panic_handler]
fn on_panic(_: &core::panic::PanicInfo<'_>) -> ! {
    rsunwind::shim::give_up_sample();
    loop {
        rsunwind::sys::yield_now();
    }
}
