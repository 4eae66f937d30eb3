//! The time, through the vDSO found by ourselves: libc's function may be interposed (libfaketime)
//! or not safe in a handler. Whoever wants the time asks here: the vDSO reads the processor's
//! counter, which a program may forbid (`PR_SET_TSC`), and then this is a system call.
//!
//! # Safety
//! Reads the vDSO image that the kernel mapped, within the bounds that its own headers give.
#![allow(unsafe_code)]

use crate::sys::{self, call};
use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type ClockGettime = unsafe extern "C" fn(clock: i32, time: *mut [i64; 2]) -> i32;

static CLOCK_GETTIME: AtomicUsize = AtomicUsize::new(0);

/// `CLOCK_MONOTONIC`, ns.
///
/// # Signal safety
/// A vDSO call; a system call where there is no vDSO.
#[inline]
pub fn monotonic_ns() -> u64 {
    let function = CLOCK_GETTIME.load(Relaxed);
    if function != 0 {
        // SAFETY: set only by `find_vdso`, to the function of this signature.
        let function = unsafe { core::mem::transmute::<usize, ClockGettime>(function) };
        let mut time = [0i64; 2];
        // SAFETY: the vDSO writes two words.
        if unsafe { function(libc::CLOCK_MONOTONIC, &raw mut time) } == 0 {
            let [seconds, nanoseconds] = time;
            return (seconds as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(nanoseconds as u64);
        }
    }
    sys::clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(1)
}

/// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns.
pub fn realtime_offset_ns() -> u64 {
    let realtime = sys::clock_ns(libc::CLOCK_REALTIME).unwrap_or(0);
    realtime.wrapping_sub(monotonic_ns())
}

/// Whether the time can be read without a system call, as far as that can be known.
pub fn needs_no_call() -> bool {
    /// Those that the kernel's image for programs reads itself.
    const WITHOUT: [&[u8]; 3] = [b"tsc", b"kvm-clock", b"hyperv_clocksource_tsc_page"];
    let mut buffer = [0u8; 64];
    let path = b"/sys/devices/system/clocksource/clocksource0/current_clocksource\0";
    let source = sys::read_file(path, &mut buffer);
    let source = source.strip_suffix(b"\n").unwrap_or(source);
    CLOCK_GETTIME.load(Relaxed) != 0 && WITHOUT.contains(&source)
}

/// The processor's counter must not be read any more, by the calling thread and those that it
/// starts: from now on the time is a system call.
///
/// # Signal safety
/// One store.
pub fn avoid_counter() {
    CLOCK_GETTIME.store(0, Relaxed);
}

/// Whether reading the counter would fault, which a program leaves to the one after exec.
fn counter_is_forbidden() -> bool {
    let mut mode = 0i32;
    // SAFETY: the kernel writes one word.
    let known = unsafe { call!(libc::SYS_prctl, libc::PR_GET_TSC, &raw mut mode) };
    known.is_ok() && mode == libc::PR_TSC_SIGSEGV
}

/// Finds the vDSO's clock. Until it is called, and where there is none, [`monotonic_ns`] is a
/// system call.
pub fn find_vdso(image: usize) {
    if counter_is_forbidden() {
        return;
    }
    // SAFETY: `image` is AT_SYSINFO_EHDR, an ELF image that the kernel maps whole and keeps.
    if let Some(function) = unsafe {
        symbol(image, c"__vdso_clock_gettime").or_else(|| symbol(image, c"__kernel_clock_gettime"))
    } {
        CLOCK_GETTIME.store(function, Relaxed);
    }
}

/// # Safety
/// `image` is 0 or the start of a complete, well-formed 64-bit ELF image in memory.
unsafe fn symbol(image: usize, name: &CStr) -> Option<usize> {
    if image == 0 {
        return None;
    }
    // SAFETY: (for all reads here) the caller's promise; the offsets are those of the ELF-64
    // structures.
    let read = |address: usize| unsafe { (address as *const u64).read_unaligned() };
    let short = |address: usize| read(address) & 0xffff;
    let programs = image.wrapping_add(read(image.wrapping_add(32)) as usize);
    let count = short(image.wrapping_add(56)) as usize;
    let (mut bias, mut dynamic) = (None, None);
    for index in 0..count {
        let program = programs.wrapping_add(index.wrapping_mul(56));
        let (offset, address) = (
            read(program.wrapping_add(8)) as usize,
            read(program.wrapping_add(16)) as usize,
        );
        match read(program) as u32 {
            libc::PT_LOAD if bias.is_none() => {
                bias = Some(image.wrapping_add(offset).wrapping_sub(address))
            }
            libc::PT_DYNAMIC => dynamic = Some(image.wrapping_add(offset)),
            _ => {}
        }
    }
    let (bias, mut entry) = (bias?, dynamic?);
    let (mut symbols, mut strings) = (0, 0);
    while read(entry) != 0 {
        let value = bias.wrapping_add(read(entry.wrapping_add(8)) as usize);
        match read(entry) {
            5 => strings = value,
            6 => symbols = value,
            _ => {}
        }
        entry = entry.wrapping_add(16);
    }
    // The string table follows the symbol table, as the kernel's linker script lays them out.
    let bytes = strings
        .checked_sub(symbols)
        .filter(|bytes| *bytes < 0x10000)?;
    (0..bytes.wrapping_div(24))
        .map(|index| symbols.wrapping_add(index.wrapping_mul(24)))
        .find_map(|symbol| {
            let text = strings.wrapping_add(read(symbol) as u32 as usize);
            // SAFETY: string tables end in a zero byte.
            let matches = unsafe { CStr::from_ptr(text as *const _) } == name;
            (matches && short(symbol.wrapping_add(6)) != 0)
                .then(|| bias.wrapping_add(read(symbol.wrapping_add(8)) as usize))
        })
}
