//! What happens when the signal arrives. **The path of a sample starts here.**
//!
//! The kernel enters [`crate::arch::signal_entry`], which goes over to the thread's own stack and calls [`on_signal`]. That tells our
//! signals from the program's own, and for ours: asks the trigger what the signal stands for, and opens an entry
//! ([`crate::clients::entry`]), which walks the stack and hands it to who asked: the CPU sampler's is written as a record.
//!
//! # Safety
//! Runs in a signal handler: nothing here allocates, locks, formats, or touches errno. The pointers are the kernel's.
#![allow(unsafe_code)]

use crate::arch;
use crate::clients::REQUESTED;
use crate::clients::entry::{self, Entry};
use crate::clock;
use crate::process::{PROCESS, own_action};
use crate::session::Control;
use crate::sys::{self, Errno, KernelAction};
use crate::thread::ThreadState;
use crate::trigger::{Armed, SIGNAL};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use engine::registers::Registers;
use engine::wire::event::EventKind;
use engine::wire::sample::{Trigger, flags};
use engine::wire::thread::ThreadEndReason;

/// The parts of `siginfo_t` that triggers fill, at the kernel's offsets.
#[derive(Debug)]
#[repr(C)]
pub struct SignalInfo {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    timer_id: i32,
    overrun: i32,
    /// `si_value` of a timer; `si_fd` of a file.
    value: u64,
}

/// What one signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub trigger: Trigger,
    /// Ties the stack to the kernel's samples.
    pub nonce: u64,
    /// Sampling periods that the stack stands for.
    pub weight: u64,
    /// See [`flags`].
    pub flags: u64,
}

/// `si_code` of a signal that a file raised: from `POLL_IN` to `POLL_HUP`.
const POLL_IN: i32 = 1;
const POLL_HUP: i32 = 6;

enum Origin {
    Ours(Request),
    /// Ours, but there is nothing to do: coalesced, or from a trigger that is gone.
    Stale,
    Theirs,
}

/// The program's own action for the signal, as it set it.
static PROGRAM_HANDLER: AtomicUsize = AtomicUsize::new(0);
static PROGRAM_FLAGS: AtomicU64 = AtomicU64::new(0);
static PROGRAM_MASK: AtomicU64 = AtomicU64::new(0);
/// Whether a signal of the program's own has come to its handler.
static PROGRAM_USES: AtomicBool = AtomicBool::new(false);

/// Installs the handler, remembering the action before as the program's.
///
/// # Errors
/// As `rt_sigaction`.
pub fn install() -> Result<(), Errno> {
    let before = sys::signal_action(SIGNAL, Some(&own_action()))?;
    if before.handler != own_action().handler {
        set_program_action(before);
    }
    Ok(())
}

/// Remembers what the program wants done with the signal; gives what it wanted before.
pub fn set_program_action(action: KernelAction) -> KernelAction {
    let before = program_action();
    PROGRAM_HANDLER.store(action.handler, Relaxed);
    PROGRAM_FLAGS.store(action.flags, Relaxed);
    PROGRAM_MASK.store(action.mask, Relaxed);
    before
}

/// What the program wants done with the signal.
pub fn program_action() -> KernelAction {
    KernelAction {
        handler: PROGRAM_HANDLER.load(Relaxed),
        flags: PROGRAM_FLAGS.load(Relaxed),
        restorer: 0,
        mask: PROGRAM_MASK.load(Relaxed),
    }
}

/// Whether the program has a handler of its own for the signal.
pub fn program_handles() -> bool {
    !matches!(PROGRAM_HANDLER.load(Relaxed), libc::SIG_DFL | libc::SIG_IGN)
}

/// Whether that handler was called already.
pub fn program_uses() -> bool {
    PROGRAM_USES.load(Relaxed)
}

/// The handler's body, on the thread's own stack. Gives 0, or the address of the program's handler to go on with.
pub(crate) unsafe extern "C" fn on_signal(
    _: c_int,
    info: *const SignalInfo,
    context: *mut c_void,
) -> usize {
    // SAFETY: the kernel gives a siginfo to an SA_SIGINFO handler.
    let info = unsafe { &*info };
    let Some(this) = ThreadState::current_unchecked() else {
        return stray(info, context, None);
    };
    let (sampling, is_theirs) = match origin(this, info) {
        Origin::Ours(request) => (Some(request), false),
        Origin::Stale => (None, false),
        Origin::Theirs => (None, true),
    };
    if sampling.is_some() || this.requests.any() {
        let walking = this.walking.load(Relaxed);
        this.walking.store(walking.wrapping_add(1), SeqCst);
        serve(this, sampling, context);
        this.walking.store(walking.wrapping_add(2), SeqCst);
    }
    if is_theirs {
        this.handled = this.handled.wrapping_add(1);
        stray(info, context, Some(this))
    } else {
        0
    }
}

/// The same on a thread that has no state: on whatever stack it is on, so this does little.
pub(crate) unsafe extern "C" fn on_stray_signal(
    _: c_int,
    info: *const SignalInfo,
    context: *mut c_void,
) -> usize {
    // SAFETY: as above.
    stray(unsafe { &*info }, context, None)
}

fn origin(this: &mut ThreadState, info: &SignalInfo) -> Origin {
    let tag = ptr::from_ref(this) as u64;
    match (&mut this.armed, info.code) {
        (Armed::Timer(timer), libc::SI_TIMER) if info.value == tag => {
            if !timer.raised(info.timer_id) {
                return Origin::Stale;
            }
            let weight = u64::from(info.overrun.max(0) as u32).saturating_add(1);
            Origin::Ours(Request {
                trigger: Trigger::Timer,
                nonce: this.next_nonce(),
                weight: this.told_weight(weight),
                flags: 0,
            })
        }
        (Armed::Perf(event), POLL_IN..=POLL_HUP) if event.raised(info.value as i32) => {
            if rests(this) {
                return Origin::Stale; // the next walk stands for it
            }
            sampled_by_perf(this, true)
        }
        // A signal of the perf event that came while this one was pending was dropped: its samples wait in the ring.
        (Armed::Perf(_), REQUESTED) => sampled_by_perf(this, false),
        (_, REQUESTED) => Origin::Stale,
        _ => Origin::Theirs,
    }
}

/// The samples in the ring. If it is full its cursor stands still: then it takes a signal of the event's to say that there are more.
fn sampled_by_perf(this: &mut ThreadState, by_event: bool) -> Origin {
    let trigger = this.trigger();
    let drained = this.drain_perf();
    let counted = drained.samples.saturating_add(drained.lost);
    let is_full = drained.stands_still && by_event;
    if counted == 0 && !is_full {
        return Origin::Stale; // its samples were seen at an earlier signal
    }
    Origin::Ours(Request {
        trigger,
        nonce: drained.cursor,
        weight: this.take_weight(counted),
        flags: if drained.stands_still {
            flags::RING_FULL
        } else {
            0
        },
    })
}

fn serve(this: &mut ThreadState, sampling: Option<Request>, context: *mut c_void) {
    let time_ns = clock::monotonic_ns();
    let is_over = sampling.is_some() && Control::over_at(time_ns);
    if sampling.is_some() && !is_over {
        if this.unfinished {
            PROCESS.finish_fork_child(this);
        }
        if this.has_no_samples() {
            this.record_name();
        }
    }
    // At the end of the session: what the sample stands for was before it.
    let sampling = sampling.filter(|_| !(is_over && this.unfinished));
    // SAFETY: the kernel gives a ucontext to an SA_SIGINFO handler.
    let registers = unsafe { Registers::from_ucontext(context) };
    let entry = Entry {
        registers: &registers,
        time_ns,
        sampling,
    };
    // SAFETY: the calling thread's own; what is used of it below is not written meanwhile.
    unsafe { entry::serve(this, &entry) };
    if is_over {
        this.close_here(ThreadEndReason::Stopped);
        PROCESS.event(this, EventKind::SessionOver, 0, b"");
        this.disarm();
    } else if sampling.is_some() {
        let now_ns = clock::monotonic_ns();
        let spent_ns = now_ns.saturating_sub(time_ns);
        this.count_handler_time(spent_ns);
        rest(this, now_ns, spent_ns);
    }
}

/// A handler that was put off the CPU is slow once; stacks of many thousand frames make it slow each time.
const SLOW_WALKS: u8 = 8;
/// The program then has this many times as long to itself as a walk took.
const REST: u64 = 3;

/// Sees to it that the program gets on, whatever a walk takes: at a short period there may be nothing left of it.
fn rest(this: &mut ThreadState, now_ns: u64, spent_ns: u64) {
    if spent_ns < PROCESS.period_ns() / 2 {
        (this.slow_walks, this.rests_until_ns) = (0, 0);
        return;
    }
    this.slow_walks = this.slow_walks.saturating_add(1);
    if this.slow_walks >= SLOW_WALKS {
        this.rests_until_ns = now_ns.saturating_add(spent_ns.saturating_mul(REST));
        if this.slow_walks == SLOW_WALKS {
            let text =
                b"walks took longer than half a sampling period: fewer were made, each for several";
            PROCESS.event(this, EventKind::Note, spent_ns, text);
        }
    }
}

fn rests(this: &ThreadState) -> bool {
    this.rests_until_ns != 0 && clock::monotonic_ns() < this.rests_until_ns
}

/// The thread that waits for the signal in `sigwait` or the like; 0 if none does.
static WAITER: AtomicU32 = AtomicU32::new(0);

/// Says that the calling thread waits for the program's own signals of our number, or no longer does.
pub fn set_waiting(waits: bool) {
    WAITER.store(if waits { sys::gettid() } else { 0 }, SeqCst);
}

/// A signal that is the program's own, or one of ours that comes too late.
fn stray(info: &SignalInfo, context: *mut c_void, this: Option<&mut ThreadState>) -> usize {
    if is_late(info, this.as_deref()) {
        return 0;
    }
    if let Some(this) = this
        && this.believes_blocked
    {
        keep(this);
        return 0;
    }
    let action = program_action();
    match action.handler {
        libc::SIG_IGN => 0,
        libc::SIG_DFL => {
            // Whatever has a code of our triggers must never reach the default action, which kills.
            if !matches!(info.code, POLL_IN..=POLL_HUP) {
                die();
            }
            0
        }
        handler => {
            PROGRAM_USES.store(true, Relaxed);
            enter_program_handler(action, context);
            handler
        }
    }
}

/// Whether a signal was raised by a trigger that is gone by now.
fn is_late(info: &SignalInfo, this: Option<&ThreadState>) -> bool {
    match (info.code, this) {
        (POLL_IN..=POLL_HUP, Some(this)) => {
            info.value as i32 >= 0 && this.past_descriptors.contains(&(info.value as i32))
        }
        (libc::SI_TIMER, Some(this)) => info.value == ptr::from_ref(this) as u64,
        (REQUESTED, _) | (POLL_IN..=POLL_HUP | libc::SI_TIMER, None) => true,
        _ => false,
    }
}

/// Whether a signal that a waiting thread got instead of the handler is not the program's.
pub fn is_ours(info: &SignalInfo, this: &ThreadState) -> bool {
    let raised = match &this.armed {
        Armed::Perf(event) => {
            matches!(info.code, POLL_IN..=POLL_HUP) && event.raised(info.value as i32)
        }
        _ => false,
    };
    raised || is_late(info, Some(this))
}

/// The program believes the signal blocked on this thread: it waits, or goes to the thread that waits for it.
fn keep(this: &mut ThreadState) {
    let waiter = WAITER.load(SeqCst);
    if waiter != 0 && waiter != this.tid.load(Relaxed) {
        sys::send_to_thread(waiter, SIGNAL);
    } else {
        this.owed = true;
    }
}

/// Does what the kernel would have done, had the action been the program's own: sets the mask that its handler runs with, and ends a call
/// that it does not want restarted.
fn enter_program_handler(action: KernelAction, context: *mut c_void) {
    // SAFETY: the kernel's ucontext holds the interrupted mask there.
    let interrupted = unsafe { context.byte_add(arch::CONTEXT_MASK).cast::<u64>().read() };
    let itself = if action.flags & libc::SA_NODEFER as u64 == 0 {
        sys::bit(SIGNAL)
    } else {
        0
    };
    if action.flags & libc::SA_RESTART as u64 == 0 {
        // SAFETY: the kernel's ucontext.
        unsafe { arch::end_restarted_call(context) };
    }
    if action.flags & libc::SA_RESETHAND as u64 != 0 {
        PROGRAM_HANDLER.store(libc::SIG_DFL, Relaxed);
    }
    sys::signal_mask(libc::SIG_SETMASK, interrupted | action.mask | itself);
}

/// Does what the kernel would have done: the signal's default action.
fn die() {
    let _ = sys::signal_action(
        SIGNAL,
        Some(&KernelAction {
            flags: sys::SA_RESTORER,
            restorer: arch::restorer(),
            ..KernelAction::default()
        }),
    );
    sys::send_to_thread(sys::gettid(), SIGNAL);
    sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(SIGNAL));
}

/// The safety net: called when our code finds that it would panic. Gives the sample up and goes on with the program if the handler is
/// running; else does nothing, and the caller must find another way.
pub fn give_up_sample() {
    if let Some(this) = ThreadState::current_unchecked() {
        let walking = this.walking.load(Relaxed);
        this.requests.abandon();
        if this.call_slot != 0 {
            this.walking.store(walking.wrapping_add(1) & !1, Relaxed);
            // SAFETY: `entry::serve_here` waits for the call that this runs below.
            unsafe { arch::abandon_call(this.call_slot) };
        }
        if walking % 2 == 1 {
            this.disarm();
            this.walking.store(walking.wrapping_add(1), Relaxed);
            // SAFETY: `walking` is odd, so this runs below `on_signal`.
            unsafe { arch::abandon_handler() };
        }
    }
}
