//! Calls that the kernel never restarts after a handler, whatever its flags, and long transfers that it cuts short: a sample taken in kernel
//! mode would show the program an EINTR, an early wake-up or a short count that it would not see otherwise. Our signal is held back for
//! the length of the call: a sample taken in it is then delivered right behind it, with the same callers on the stack. The program's own
//! signals interrupt as ever, and their handlers run with ours let in again ([`super::handlers`]), wherever they lead.
//!
//! Only threads whose perf event samples kernel mode need it; CPU timers and user-mode events never interrupt a sleeping call. A program
//! whose own handler of the same signal has been called is left alone from then on: its signal must come through, and it has seen what that
//! does to calls.
//!
//! Not here: calls by number ([`super::syscalls`]), and short reads that are made whole afterwards ([`super::reads`]).

use super::frame::call;
use crate::next::Next;
use core::ffi::{c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rsunwind::thread::ThreadState;
use rsunwind::trigger::SIGNAL;
use rsunwind::wire::sample::{Held, Trigger};
use rsunwind::{arch, handler, sys};

/// Writes of at most this many bytes to a pipe happen whole or not at all; longer ones are held together.
const WHOLE_WRITE: usize = 4096;
/// `getrandom` gives this much at least without a break.
pub const SHORT_RANDOM: usize = 256;
/// A signal frame takes more than this, bytes.
const LEAST_SIGNAL_FRAME: u64 = 512;

/// Whether the program has ever set a timeout on a socket: only then does the kernel not restart calls on sockets.
static SOCKET_TIMEOUTS: AtomicBool = AtomicBool::new(false);

/// Holds our signal back while it lives.
pub struct Shield {
    state: State,
    /// What held it back before: a call that a handler of the program's interrupted.
    outer: (u64, Option<Held>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Down,
    /// The call itself replaces the mask, by one that has our signal in it.
    Marked,
    Raised,
}

impl Shield {
    const DOWN: Self = Self {
        state: State::Down,
        outer: (0, None),
    };

    /// Whether samples of the calling thread can end a sleeping call, and should not.
    pub fn is_needed() -> bool {
        Self::thread().is_some()
    }

    fn thread() -> Option<&'static mut ThreadState> {
        let this = ThreadState::current_unchecked()?;
        let theirs = handler::program_handles() && handler::program_uses();
        (this.trigger() == Trigger::PerfKernel && !theirs).then_some(this)
    }

    /// Raises the shield on a thread that needs it, if wanted, for a call of `function` by the caller, whose own stack pointer is `sp`. What
    /// is sampled while it is up is known by that.
    pub fn raise_if(wanted: bool, function: &Next, sp: u64) -> Self {
        let Some(this) = wanted.then(Self::thread).flatten() else {
            return Self::DOWN;
        };
        // A call that a handler makes within a shielded one lies below the handler's frame; otherwise a longjmp has left that one behind.
        let abandoned = this.shielded != 0 && this.shielded < sp.saturating_add(LEAST_SIGNAL_FRAME);
        // A program that sets its mask on its own (inside a handler that has ours blocked) keeps it.
        let was_open = sys::signal_mask(libc::SIG_BLOCK, sys::bit(SIGNAL)) & sys::bit(SIGNAL) == 0;
        if !was_open && !abandoned {
            return Self::DOWN;
        }
        let outer = match abandoned {
            true => (0, None),
            false => (this.shielded, this.held),
        };
        this.shielded = sp;
        this.held = Some(Held {
            since: this.cursor(),
            sp,
            function: function.address().unwrap_or(0) as u64,
        });
        Self {
            state: State::Raised,
            outer,
        }
    }

    /// The same where the call itself holds our signal back, by the mask that it is given.
    pub fn mark_if(held: bool, sp: u64) -> Self {
        let Some(this) = held.then(ThreadState::current_unchecked).flatten() else {
            return Self::DOWN;
        };
        let outer = (this.shielded, this.held);
        (this.shielded, this.held) = (sp, None);
        Self {
            state: State::Marked,
            outer,
        }
    }

    /// A handler of the program's runs, or the call is left by unwinding: our signal is let in, if it was us who held it back.
    pub fn open() {
        if ThreadState::current_unchecked().is_some_and(|this| this.shielded != 0) {
            sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(SIGNAL));
        }
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        if self.state == State::Down {
            return;
        }
        let mut this = ThreadState::current_unchecked();
        if let Some(this) = &mut this {
            this.shielded = self.outer.0;
        }
        if self.state == State::Raised {
            // Here the signal comes in, if there is one.
            sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(SIGNAL));
        }
        if let Some(this) = this {
            this.held = self.outer.1;
        }
    }
}

macro_rules! shielded {
    ($($when:expr => fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $(= $absent:expr)?;)*) => {
        mod host {
            use super::{c_int, c_long, c_uint, c_void};
            crate::next! {
                $(fn $name($($argument: $type),*) -> $result = -1i32 as $result;)*
            }
        }
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                let _shield = Shield::raise_if($when, &host::next::$name, arch::stack_pointer());
                $(if host::next::$name.address().is_none() {
                    return $absent;
                })?
                // SAFETY: the host's function, and the caller's arguments.
                unsafe { call!(host::$name($($argument),*)) }
            }
        )*
    };
}

type Pointer = *mut c_void;

shielded! {
    true => fn poll(fds: *mut c_void, count: usize, timeout: c_int) -> c_int;
    true => fn __poll_chk(fds: *mut c_void, count: usize, timeout: c_int, size: usize) -> c_int;
    true => fn select(count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, timeout: *mut c_void) -> c_int;
    timeout != 0 => fn epoll_wait(fd: c_int, events: *mut c_void, count: c_int, timeout: c_int) -> c_int;
    true => fn nanosleep(time: *mut c_void, rest: *mut c_void) -> c_int;
    true => fn clock_nanosleep(clock: c_int, flags: c_int, time: *mut c_void, rest: *mut c_void) -> c_int;
    true => fn thrd_sleep(time: *mut c_void, rest: *mut c_void) -> c_int;
    true => fn usleep(time: c_uint) -> c_int;
    true => fn sleep(time: c_uint) -> c_uint;
    true => fn sem_timedwait(semaphore: *mut c_void, until: *mut c_void) -> c_int;
    true => fn sem_clockwait(semaphore: *mut c_void, clock: c_int, until: *mut c_void) -> c_int;
    true => fn semop(set: c_int, operations: *mut c_void, count: usize) -> c_int;
    true => fn semtimedop(set: c_int, operations: *mut c_void, count: usize, timeout: *mut c_void) -> c_int;
    true => fn msgsnd(queue: c_int, message: *mut c_void, size: usize, flags: c_int) -> c_int;
    true => fn msgrcv(queue: c_int, message: *mut c_void, size: usize, kind: c_long, flags: c_int) -> isize;
    true => fn io_getevents(context: usize, least: c_long, most: c_long, events: *mut c_void, timeout: *mut c_void) -> c_int = get_events(context, least, most, events, timeout);
    true => fn aio_suspend(list: *mut c_void, count: c_int, timeout: *mut c_void) -> c_int;
    true => fn readv(fd: c_int, vectors: *mut c_void, count: c_int) -> isize;
    true => fn preadv(fd: c_int, vectors: *mut c_void, count: c_int, offset: i64) -> isize;
    true => fn preadv64(fd: c_int, vectors: *mut c_void, count: c_int, offset: i64) -> isize;
    true => fn preadv2(fd: c_int, vectors: *mut c_void, count: c_int, offset: i64, flags: c_int) -> isize;
    true => fn preadv64v2(fd: c_int, vectors: *mut c_void, count: c_int, offset: i64, flags: c_int) -> isize;
    size > SHORT_RANDOM => fn getrandom(buffer: *mut c_void, size: usize, flags: c_uint) -> isize;
    size > WHOLE_WRITE => fn write(fd: c_int, buffer: *mut c_void, size: usize) -> isize;
    true => fn writev(fd: c_int, vectors: *mut c_void, count: c_int) -> isize;
    true => fn pwritev(fd: c_int, vectors: *mut c_void, count: c_int, offset: i64) -> isize;
    true => fn pwritev64(fd: c_int, vectors: *mut c_void, count: c_int, offset: i64) -> isize;
    true => fn pwritev2(fd: c_int, vectors: *mut c_void, count: c_int, offset: i64, flags: c_int) -> isize;
    true => fn pwritev64v2(fd: c_int, vectors: *mut c_void, count: c_int, offset: i64, flags: c_int) -> isize;
    size > WHOLE_WRITE => fn sendfile(to: c_int, from: c_int, offset: *mut c_void, size: usize) -> isize;
    size > WHOLE_WRITE => fn sendfile64(to: c_int, from: c_int, offset: *mut c_void, size: usize) -> isize;
    size > WHOLE_WRITE => fn splice(from: c_int, from_offset: *mut c_void, to: c_int, to_offset: *mut c_void, size: usize, flags: c_uint) -> isize;
    size > WHOLE_WRITE => fn copy_file_range(from: c_int, from_offset: *mut c_void, to: c_int, to_offset: *mut c_void, size: usize, flags: c_uint) -> isize;
    receives(flags) => fn recv(fd: c_int, buffer: *mut c_void, size: usize, flags: c_int) -> isize;
    receives(flags) => fn recvfrom(fd: c_int, buffer: *mut c_void, size: usize, flags: c_int, from: *mut c_void, length: *mut c_void) -> isize;
    receives(flags) => fn __recv_chk(fd: c_int, buffer: *mut c_void, size: usize, room: usize, flags: c_int) -> isize;
    receives(flags) => fn __recvfrom_chk(fd: c_int, buffer: *mut c_void, size: usize, room: usize, flags: c_int, from: *mut c_void, length: *mut c_void) -> isize;
    receives(flags) => fn recvmsg(fd: c_int, message: *mut c_void, flags: c_int) -> isize;
    true => fn recvmmsg(fd: c_int, messages: *mut c_void, count: c_uint, flags: c_int, timeout: *mut c_void) -> c_int;
    sends(size) => fn send(fd: c_int, buffer: *mut c_void, size: usize, flags: c_int) -> isize;
    sends(size) => fn sendto(fd: c_int, buffer: *mut c_void, size: usize, flags: c_int, to: *mut c_void, length: c_uint) -> isize;
    true => fn sendmsg(fd: c_int, message: *mut c_void, flags: c_int) -> isize;
    true => fn sendmmsg(fd: c_int, messages: *mut c_void, count: c_uint, flags: c_int) -> c_int;
    on_sockets() => fn accept(fd: c_int, address: *mut c_void, length: *mut c_void) -> c_int;
    on_sockets() => fn accept4(fd: c_int, address: *mut c_void, length: *mut c_void, flags: c_int) -> c_int;
    on_sockets() => fn connect(fd: c_int, address: *mut c_void, length: c_uint) -> c_int;
}

/// Whether calls on sockets may have a time limit.
pub fn on_sockets() -> bool {
    SOCKET_TIMEOUTS.load(Relaxed)
}

fn sends(size: usize) -> bool {
    size > WHOLE_WRITE || on_sockets()
}

fn receives(flags: c_int) -> bool {
    flags & libc::MSG_WAITALL != 0 || on_sockets()
}

/// `io_getevents` of libaio, where only a library that we do not see has it: the call itself, with its result.
fn get_events(
    context: usize,
    least: c_long,
    most: c_long,
    events: Pointer,
    timeout: Pointer,
) -> c_int {
    let (least, most) = (least as usize, most as usize);
    let (events, timeout) = (events as usize, timeout as usize);
    // SAFETY: the caller's arguments.
    unsafe {
        arch::syscall6(
            libc::SYS_io_getevents,
            context,
            least,
            most,
            events,
            timeout,
            0,
        ) as c_int
    }
}

mod host_options {
    use super::{Pointer, c_int, c_uint};
    crate::next! {
        fn setsockopt(fd: c_int, level: c_int, option: c_int, value: Pointer, length: c_uint) -> c_int = -1;
    }
}

/// `setsockopt(2)`: notes that timeouts are in use.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: Pointer,
    length: c_uint,
) -> c_int {
    if level == libc::SOL_SOCKET && matches!(option, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) {
        SOCKET_TIMEOUTS.store(true, Relaxed);
    }
    // SAFETY: the caller's arguments.
    unsafe { host_options::setsockopt(fd, level, option, value, length) }
}
