//! Reads: long ones are held together by the shield; shorter ones that one of our samples cut short are made whole afterwards, which costs
//! nothing where it does not happen. Only devices that give bytes out of nothing (`/dev/zero`, `/dev/urandom`) look for signals between
//! two pages: what is missing is there to be had at once.

use super::frame::call;
use super::shield::{Shield, on_sockets};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use rsunwind::thread::ThreadState;
use rsunwind::{arch, sys};

/// Reads of at least this many bytes are held together; shorter ones are not worth two system calls.
const LONG: usize = 64 * 1024;
/// The kernel looks for signals behind this many bytes.
const PAGE: usize = 4096;

mod host {
    use super::{c_int, c_void};
    crate::next! {
        fn read(fd: c_int, buffer: *mut c_void, size: usize) -> isize = -1;
        fn pread(fd: c_int, buffer: *mut c_void, size: usize, offset: i64) -> isize = -1;
        fn pread64(fd: c_int, buffer: *mut c_void, size: usize, offset: i64) -> isize = -1;
        fn __read_chk(fd: c_int, buffer: *mut c_void, size: usize, room: usize) -> isize = -1;
        fn __pread_chk(fd: c_int, buffer: *mut c_void, size: usize, offset: i64, room: usize) -> isize = -1;
        fn __pread64_chk(fd: c_int, buffer: *mut c_void, size: usize, offset: i64, room: usize) -> isize = -1;
    }
}

macro_rules! reads {
    ($($name:ident($($more:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(fd: c_int, buffer: *mut c_void, size: usize $(, $more: $type)*) -> isize {
                let shield = Shield::raise_if(may_be_cut(fd, size), &host::next::$name, arch::stack_pointer());
                let before = handler_runs();
                // SAFETY: the host's function, and the caller's arguments.
                let got: isize = unsafe { call!(host::$name(fd, buffer, size $(, $more)*)) };
                drop(shield);
                // SAFETY: the caller's buffer.
                unsafe { made_whole(fd, buffer, size, got, before) }
            }
        )*
    };
}

reads! {
    read();
    pread(offset: i64);
    pread64(offset: i64);
    __read_chk(room: usize);
    __pread_chk(offset: i64, room: usize);
    __pread64_chk(offset: i64, room: usize);
}

/// Whether a handler of ours would end a read, or cut it short, that is not made whole afterwards. Those of files are not ended by signals.
fn may_be_cut(fd: c_int, size: usize) -> bool {
    (size >= LONG || on_sockets()) && Shield::is_needed() && !sys::is_regular_file(fd)
}

/// Changes when our handler runs on this thread.
fn handler_runs() -> u64 {
    ThreadState::current_unchecked().map_or(0, |this| this.walking.load(Relaxed))
}

/// Reads what is missing, if it is because of us.
///
/// # Safety
/// The buffer has room for that size.
unsafe fn made_whole(
    fd: c_int,
    buffer: *mut c_void,
    size: usize,
    got: isize,
    runs_before: u64,
) -> isize {
    let mut whole = usize::try_from(got).unwrap_or(0);
    let is_cut = size > PAGE && whole >= PAGE && whole < size && whole.is_multiple_of(PAGE);
    if !is_cut || handler_runs() == runs_before || !sys::gives_bytes_out_of_nothing(fd) {
        return got;
    }
    while whole < size {
        let place = buffer.wrapping_byte_add(whole) as usize;
        // SAFETY: within the caller's buffer.
        let more =
            unsafe { arch::syscall6(libc::SYS_read, fd as usize, place, size - whole, 0, 0, 0) };
        match usize::try_from(more) {
            Ok(more) if more > 0 => whole = whole.saturating_add(more),
            _ => break,
        }
    }
    whole as isize
}
