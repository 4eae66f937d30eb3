//! Calls of the program that our signal has ended are made again, by the handler: it sends the
//! thread back to the system call instruction, as the kernel does where it restarts a call. So
//! nothing is done around a call, which costs what it costs without us.
//!
//! Most calls the kernel makes again itself, because our action says `SA_RESTART`. Some it never
//! does, whatever the action (`poll`, `nanosleep` …): they end with `EINTR`. Behind such a call
//! ([`registers`]) the handler puts the number back into its register and the pc on the
//! instruction. How a relative time is shortened is said for each call in [`calls`]: most often the
//! kernel has written what is left where the instruction reads it. Where it has not, a wrapper in
//! front of libc's function notes when the call began ([`Calls::note_time`]). The number stands in
//! the code in front of the instruction, or in a register that it names; where a libc has its one
//! instruction for all calls (glibc from 2.41 on, musl), the wrapper notes it ([`Calls::note`]).
//! What is changed of the registers is seen by the code behind the instruction, so these are only
//! arguments of the call, which no libc reads again.
//!
//! Transfers that were cut short, and calls on sockets with a time limit, go on elsewhere
//! ([`rest`], [`resume`]). So does a call that looks at so many descriptors that each time the next
//! sample comes before it is through: it would never end ([`held`]).
//!
//! **The program's own signals end calls as ever.** Three rules, because the registers alone do not
//! tell whose signal it was, and because the kernel knows of one handler only. They are kept by
//! what stands in front of each handler of the program's ([`Calls::before_theirs`]):
//!
//! 1. Behind a call that a signal of the program's has ended, or cut short, our signal may be next,
//!    once its handler has returned: it must stay ended. So rcx, which by then says nothing to
//!    anybody, is changed in the context of that handler: the thread does not look as if it stood
//!    behind an instruction any more.
//! 2. A signal of the program's may come when the thread was sent back and the instruction has not
//!    run. It ends the call, as if the thread were in it. That the thread was sent back is known by
//!    a mark in rcx, which the instruction overwrites.
//! 3. The same is true of calls that the kernel makes again for us. It has decided by our action,
//!    before it knew of the other signal. So the handler leaves its mark there, too, and the
//!    program's action decides ([`calls::ends`]).
//!
//! # Safety
//! Reads and writes the kernel's context of the signal being handled, and the times that the call's
//! arguments point to, which the kernel has just read itself.
#![allow(unsafe_code)]

mod calls;
mod held;
mod noted;
mod registers;
mod rest;
mod resume;
mod transfers;

pub use noted::{Calls, UNKNOWN};
pub use rest::{LIMITED, LIMITED_COUNT, is_limited, limit_noted};

use crate::sys::filters;
use crate::{arch, sys, weak_address};
use calls::{Again, again, ends, looks_at_many};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8};
use engine::seccomp::SystemCall;
use registers::{CallRegisters, LENGTH, Signals, code_before, code_before_quietly};
use resume::Rest;

const SECOND: u64 = 1_000_000_000;
/// How often one call is sent back before our signal is held back for it.
const TRIES: u32 = 2;

/// Set once a seccomp filter of which nothing is known may judge which calls are made: then none is
/// made by another number than the program's, and none is made to look at what the program's are
/// about.
static KEEPS_NUMBERS: AtomicBool = AtomicBool::new(false);

/// From now on the program's calls are made by the numbers that it knows of.
pub fn keep_numbers() {
    KEEPS_NUMBERS.store(true, Relaxed);
}

/// A moment is about to come from which on they are: the last chance to ask what descriptors are.
pub fn prepare_to_keep_numbers() {
    transfers::remember_kinds();
}

/// Whether a seccomp filter of which nothing is known may judge which calls are made.
pub fn keeps_numbers() -> bool {
    KEEPS_NUMBERS.load(Relaxed)
}

/// Whether a call may be made that is not the program's own; by its number, if its arguments are
/// not given.
pub fn may_make(number: i64, arguments: Option<&[u64; 6]>) -> bool {
    let any = || SystemCall::any(number);
    let call = arguments.map_or_else(any, |arguments| SystemCall::with(number, arguments));
    !keeps_numbers() && filters::may_make(&call)
}

impl Calls {
    /// What rcx holds in a thread that is about to make a call again.
    fn mark(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    /// Our handler has run for this signal, and none of the program's will: what it ended goes on.
    /// `known_stack` is what is known to be there of the thread's stack.
    ///
    /// # Safety
    /// The context is the kernel's, of the signal being handled on this thread.
    ///
    /// # Signal safety
    /// For the handler.
    pub(crate) unsafe fn after_ours(
        &self,
        context: *mut c_void,
        signal: c_int,
        known_stack: (u64, u64),
    ) {
        self.known_stack.set(known_stack);
        // SAFETY: the caller's promise.
        let mut at = unsafe { CallRegisters::of(context) };
        let goes_back = if at.is_in_front_again() {
            code_before(at.next).is_call
        } else {
            // SAFETY: the caller's promise.
            let blocked = unsafe { interrupted_mask(context) };
            let ours = sys::bit(signal);
            at.is_behind()
                && at.value != 0
                && !is_cancelled_by_musl(blocked)
                && self.send_back(&mut at, Signals { blocked, ours })
        };
        if goes_back {
            at.next = self.mark();
            // SAFETY: the caller's promise.
            unsafe { at.set(context) };
        }
    }

    /// A handler of the program's is about to run: what its signal ends is over. `restarts` asks
    /// whether its action says `SA_RESTART`. Gives whether our signal is held back because of that
    /// call.
    ///
    /// # Safety
    /// The context is the kernel's, of the signal being handled on this thread.
    ///
    /// # Signal safety
    /// For handlers.
    pub unsafe fn before_theirs(
        &self,
        context: *mut c_void,
        restarts: impl FnOnce() -> bool,
    ) -> bool {
        // SAFETY: the caller's promise.
        let mut at = unsafe { CallRegisters::of(context) };
        let rests = [resume::made(), resume::waited()];
        // The mark is an address of ours, which code of ours may have in that register, too: the
        // instruction tells.
        let is_marked = || {
            at.next == self.mark()
                && at.kept_flags == at.flags
                && code_before_quietly(at.pc.wrapping_add(LENGTH)).is_call
        };
        if rests.contains(&at.pc.wrapping_add(LENGTH)) {
            at.give_up(); // something is done already, or time has passed
        } else if is_marked() {
            if !ends(at.value as i64, &at.arguments, restarts()) {
                return false;
            }
            at.give_up();
        } else if !at.is_behind() || !code_before_quietly(at.pc).is_call {
            return false;
        }
        let mut holds = false;
        if at.pc == resume::made() {
            // SAFETY: a thread comes there with a rest only.
            let rest = unsafe { &mut *(at.sp as *mut Rest) };
            (rest.next.size, rest.waits_for_all) = (0, 0);
            holds = rest.mask != 0;
        }
        at.next = 0;
        // SAFETY: the caller's promise.
        unsafe { at.set(context) };
        holds
    }

    /// A signal of the program's has come that has our number, and its handler is about to run: the
    /// kernel has decided by our action what becomes of the call. `restarts` is what the program's
    /// says.
    ///
    /// # Safety
    /// As above.
    ///
    /// # Signal safety
    /// For the handler.
    pub(crate) unsafe fn before_own(&self, context: *mut c_void, restarts: bool) {
        // SAFETY: the caller's promise.
        let mut at = unsafe { CallRegisters::of(context) };
        if at.is_in_front_again() && code_before(at.next).is_call {
            at.next = self.mark();
            // SAFETY: the caller's promise.
            unsafe { at.set(context) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.before_theirs(context, || restarts) };
    }

    /// Makes the registers those in front of the call that a signal has ended, if it may be made
    /// again, or of what is left of it.
    fn send_back(&self, at: &mut CallRegisters, signals: Signals) -> bool {
        if [resume::made(), resume::waited()].contains(&at.pc) {
            return self.go_on_again(at);
        }
        let is_cut = at.value as i64 > 0;
        if !is_cut && !at.is_interrupted() {
            return false;
        }
        let code = code_before(at.pc);
        let noted = self.is_of(at).then(|| self.number.get());
        let Some(number) = at.number(&code).or(noted).filter(|_| code.is_call) else {
            return false;
        };
        if is_cut {
            return self.go_on(at, number);
        }
        let number = self.converted(number, at);
        let knows_time = self.since_ns.get() != 0
            && noted.is_some_and(|noted| self.converted(noted, at) == number);
        let number = match again(number, &at.arguments) {
            None => return self.go_on_within_limit(at, number),
            Some(Again::AsItIs) => number,
            Some(Again::Written { there, read }) => {
                at.set_argument(read, at.argument(there));
                number
            }
            Some(_) if !knows_time => return false,
            Some(Again::Pointed(index)) => {
                // SAFETY: the kernel has read the time there when the call began.
                let given = unsafe { nanoseconds(at.argument(index)) };
                self.set_rest(self.left_ns(given));
                at.set_argument(index, self.rest());
                number
            }
            Some(Again::Milliseconds(index)) => {
                // An `int`: what lies above it in the register may be anything.
                let given = u64::from(at.argument(index) as u32);
                let left = self.left_ns(given.saturating_mul(1_000_000));
                match finer(number, at) {
                    Some(finer) => {
                        self.set_rest(left);
                        at.set_argument(index, self.rest());
                        finer
                    }
                    None => {
                        at.set_argument(index, left.div_ceil(1_000_000));
                        number
                    }
                }
            }
        };
        if self.never_ends(at) && looks_at_many(number) {
            return self.hold_back(at, number, signals);
        }
        at.go_back(number);
        true
    }

    /// Whether the call behind which a thread stands was sent back that often.
    fn never_ends(&self, at: &CallRegisters) -> bool {
        let place = at.pc ^ at.sp;
        let sent = match self.sent_from.replace(place) == place {
            true => self.sent.get().saturating_add(1),
            false => 1,
        };
        self.sent.set(sent);
        sent > TRIES
    }

    /// By what number a call was made last that the code makes by this one.
    fn converted(&self, number: i64, at: &CallRegisters) -> i64 {
        match number {
            libc::SYS_poll if at.argument(2) == self.rest() => libc::SYS_ppoll,
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait if at.argument(3) == self.rest() => {
                libc::SYS_epoll_pwait2
            }
            _ => number,
        }
    }
}

/// What the interrupted thread has blocked.
///
/// # Safety
/// The context is the kernel's.
unsafe fn interrupted_mask(context: *const c_void) -> u64 {
    // SAFETY: the kernel's ucontext holds it there.
    unsafe { context.byte_add(arch::CONTEXT_MASK).cast::<u64>().read() }
}

/// Whether musl's handler of a cancellation has just returned to a thread behind its call, which
/// has that mask. It counts on the call's having ended, and keeps its signal blocked from then on:
/// nothing would ever end a call that is made again. Only the handler itself blocks that signal
/// where ours is not. A process has that handler before anything could stand in front of it.
fn is_cancelled_by_musl(mask: u64) -> bool {
    const SIGCANCEL: c_int = 33;
    mask & sys::bit(SIGCANCEL) != 0 && weak_address!("gnu_get_libc_version") == 0
}

/// # Safety
/// A `struct timespec` lies there.
unsafe fn nanoseconds(time: u64) -> u64 {
    // SAFETY: the caller's promise.
    let [seconds, nanoseconds] = unsafe { (time as *const [u64; 2]).read_unaligned() };
    seconds
        .saturating_mul(SECOND)
        .saturating_add(nanoseconds)
        .min(u64::MAX >> 1)
}

/// The same call with a time in ns: what is left of one in ms is not a whole number of them, and
/// would end up to one late. Registers that the program's own call does not have must be zero
/// already, because a libc may keep something in them.
fn finer(number: i64, at: &CallRegisters) -> Option<i64> {
    let (finer, is_there): (_, fn() -> bool) = match number {
        libc::SYS_poll if at.argument(3) == 0 => (libc::SYS_ppoll, || true),
        libc::SYS_epoll_wait if at.argument(4) != 0 => return None,
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (libc::SYS_epoll_pwait2, has_epoll_pwait2),
        _ => return None,
    };
    (may_make(finer, None) && is_there()).then_some(finer)
}

/// Linux 5.11 and later.
fn has_epoll_pwait2() -> bool {
    /// 0 not known, 1 no, 2 yes.
    static HAS: AtomicU8 = AtomicU8::new(0);
    if HAS.load(Relaxed) == 0 {
        // SAFETY: a descriptor that does not exist.
        let answer =
            unsafe { crate::sys::raw(libc::SYS_epoll_pwait2, &[usize::MAX, 0, 1, 0, 0, 0]) };
        let is_there = answer != -(libc::ENOSYS as isize);
        HAS.store(1 + u8::from(is_there), Relaxed);
    }
    HAS.load(Relaxed) == 2
}
