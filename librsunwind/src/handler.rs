//! What happens when the signal arrives. **The path of a sample starts here.**
//!
//! The kernel enters [`crate::shim::signal_entry`], which goes over to the thread's own stack and
//! calls [`on_signal`]. That tells our signals from the program's own, and for ours: asks the
//! trigger what the signal stands for, and opens an entry ([`crate::clients::entry`]), which walks
//! the stack and hands it to who asked: the CPU sampler's is written as a record.
//!
//! # Safety
//! Runs in a signal handler: nothing here allocates, locks, formats, or touches errno. The pointers
//! are the kernel's.
#![allow(unsafe_code)]

use crate::arch;
use crate::clients::entry;
use crate::clock;
use crate::handler_times::Part;
// Upwards: the first signal of a fork child completes its set-up, and each may change to the other.
use crate::life::{follow, process};
use crate::pace::Seen;
use crate::process::PROCESS;
use crate::program_signal;
use crate::sample::{Entry, Request};
use crate::session::Control;
use crate::signal::{self, REQUESTED};
use crate::signal_info::{self, POLL_HUP, POLL_IN, SignalInfo, is_late};
use crate::sys::{self, KernelAction};
use crate::thread::{Information, ThreadState, handler_stack};
use crate::trigger::Armed;
use core::ffi::{c_int, c_void};
use core::ptr;
use engine::registers::Registers;
use engine::wire::event::EventKind;
use engine::wire::ring::FirstSample;
use engine::wire::sample::{Trigger, flags};
use engine::wire::thread::ThreadEndReason;

#[cfg(all(feature = "outside", not(feature = "inside")))]
// Upwards: a thread is born at its first signal, and its end is to be awaited.
use crate::life::thread_end;

/// So long in the handler, ns, few samples take that have the processor all the time.
const DOUBTED_NS: u64 = 100_000;

enum Origin {
    Ours(Request),
    /// Ours, but there is nothing to do: coalesced, or from a trigger that is gone.
    Stale,
    Theirs,
}

/// The handler's body, on the thread's own stack. Gives 0, or the address of the program's handler
/// to go on with.
pub(crate) unsafe extern "C" fn on_signal(
    _: c_int,
    information: *mut SignalInfo,
    context: *mut c_void,
) -> usize {
    // SAFETY: the kernel gives a siginfo to an SA_SIGINFO handler.
    let info = unsafe { &*information };
    let Some(this) = ThreadState::current_unchecked() else {
        return stray(info, context, None);
    };
    this.times.begin();
    if sys::are_held_back_by_word() && signal_info::looks_like_ours(info) {
        // The next sample stands for it.
        // SAFETY: the kernel's ucontext.
        unsafe {
            this.calls
                .after_ours(context, this.signal(), this.known_stack())
        };
        return 0;
    }
    let (sampling, is_theirs) = match origin(this, info, context) {
        Origin::Ours(request) => (Some(request), false),
        Origin::Stale => (None, false),
        Origin::Theirs => (None, true),
    };
    this.times.reach(Part::Ring);
    if sampling.is_some() || this.requests.any() {
        let walk = this.shared.begin_walk(arch::stack_pointer());
        serve(this, sampling, context);
        this.shared.end_walk(walk);
    }
    // SAFETY: as above, and nobody else looks at it.
    let is_theirs = is_theirs || unsafe { becomes_theirs(this, information) };
    let theirs = if is_theirs {
        // SAFETY: as above.
        stray(unsafe { &*information }, context, Some(this))
    } else {
        0
    };
    // Where nothing stands in front of the program's handlers, no event comes in a call: none is to
    // be made again.
    if theirs == 0 && cfg!(not(feature = "outside")) {
        // SAFETY: (both) the kernel's ucontext.
        unsafe {
            this.calls
                .after_ours(context, this.signal(), this.known_stack());
            this.handler_stack.lend_again(context, this.tid());
        }
        // Not in the child of a vfork, which borrows the state of its parent.
        if follow::is_behind(this) && this.tid() == sys::gettid() {
            // SAFETY: as above.
            unsafe { follow::follow_in_handler(this, context) };
        }
    }
    this.times.finish(this.tid());
    theirs
}

/// The same on a thread that has no state: on whatever stack it is on, so this does little.
pub(crate) unsafe extern "C" fn on_stray_signal(
    _: c_int,
    info: *const SignalInfo,
    context: *mut c_void,
) -> usize {
    // SAFETY: as above.
    let info = unsafe { &*info };
    #[cfg(all(feature = "outside", not(feature = "inside")))]
    if info.is_of_collector() {
        // The thread has its state from here on; the next sample stands for this one.
        if !crate::thread::outside::word_at_entry().is_null() {
            thread_end::expect_anywhere();
        }
        return 0;
    }
    stray(info, context, None)
}

/// The word of the calling thread, as [`outside::word_at_entry`](crate::thread::outside) gives it;
/// null for a signal that is none of the collector's. The kernel is asked nothing then: in a fork
/// child, or when the collector was killed, a filter may end the program for any call.
///
/// # Safety
/// The information is the kernel's.
#[cfg(feature = "inside")]
pub(crate) unsafe extern "C" fn word_for(_: c_int, info: *const SignalInfo) -> *mut c_void {
    // SAFETY: the caller's promise.
    match unsafe { (*info).is_of_collector() } {
        true => crate::thread::outside::word_at_entry(),
        false => ptr::null_mut(),
    }
}

fn origin(this: &ThreadState, info: &SignalInfo, context: *mut c_void) -> Origin {
    let tag = ptr::from_ref(this) as u64;
    // SAFETY: in the handler; nothing below replaces the trigger.
    match (unsafe { this.trigger.armed() }, info.code) {
        (armed @ (Armed::Timer(timer, _) | Armed::Late(timer)), libc::SI_TIMER)
            if info.value == tag =>
        {
            if !timer.raised(info.timer_id) {
                return Origin::Stale;
            }
            let due = u64::from(info.overrun.max(0) as u32).saturating_add(1);
            let due = due.saturating_mul(this.trigger.periods());
            let Some(weight) = this
                .budget
                .may_walk(due, PROCESS.pace.allowance_ns(1), false)
            else {
                return Origin::Stale; // the next walk stands for it
            };
            Origin::Ours(Request {
                trigger: Trigger::Timer,
                nonce: this.trigger.next_nonce(),
                // Beside an event, whose samples go by the clock, a timer's do so too; and one's
                // that comes as chance has it.
                weight: match this.trigger.is_spared() || matches!(armed, Armed::Late(_)) {
                    true => this.take_weight(weight, false),
                    false => this.told_weight(weight),
                },
                flags: this.left_out(),
                sampled_ns: 0,
            })
        }
        (Armed::Perf(event), POLL_IN..=POLL_HUP) if event.raised(info.value as i32) => {
            let allowance_ns = PROCESS.pace.allowance_ns(this.trigger.periods());
            let anyway = this.walks_to_renew(event);
            if this.budget.may_walk(1, allowance_ns, anyway).is_none() {
                let sampled_ns = delivered_since(this, event.pass(), context);
                let seen_ns = sampled_ns.map(|ns| clock::monotonic_ns().saturating_sub(ns));
                PROCESS.pace.passed(seen_ns);
                return Origin::Stale; // the next walk stands for it
            }
            sampled_by_perf(this, true, context)
        }
        (Armed::Outside, _) if info.is_of_collector() => {
            if this
                .budget
                .may_walk(1, PROCESS.pace.allowance_ns(1), false)
                .is_none()
            {
                return Origin::Stale; // the next walk stands for it
            }
            Origin::Ours(Request {
                trigger: Trigger::PerfUser,
                nonce: this.trigger.next_nonce(),
                weight: this.take_weight(1, false),
                flags: this.left_out(),
                sampled_ns: 0,
            })
        }
        // A signal of the perf event that came while this one was pending was dropped: its samples
        // wait in the ring.
        (Armed::Perf(_), REQUESTED) => sampled_by_perf(this, false, context),
        (_, REQUESTED) => Origin::Stale,
        _ => Origin::Theirs,
    }
}

/// The samples in the ring. If it is full its cursor stands still: then it takes a signal of the
/// event's to say that there are more.
fn sampled_by_perf(this: &ThreadState, by_event: bool, context: *mut c_void) -> Origin {
    let trigger = this.trigger.kind();
    let drained = this.drain_perf();
    let counted = drained.samples.saturating_add(drained.lost);
    let is_full = drained.stands_still && by_event;
    if counted == 0 && !is_full {
        return Origin::Stale; // its samples were seen at an earlier signal
    }
    let full = match drained.stands_still {
        true => flags::RING_FULL,
        false => 0,
    };
    let is_next = drained.first.is_some_and(|first| first.is_alone) && !drained.was_full;
    let counted = counted.saturating_mul(this.trigger.periods());
    let weight = this.take_weight(counted, is_next);
    this.count_missing(&drained, weight);
    Origin::Ours(Request {
        trigger,
        nonce: drained.cursor,
        weight,
        flags: full | this.left_out(),
        sampled_ns: delivered_since(this, drained.first, context).unwrap_or(0),
    })
}

/// Since when the kernel has done nothing for the thread but to deliver the signal of that sample,
/// ns, if that can be said. Where samples take longer than they are apart there are others
/// behind it, taken on the way; one that was taken while the handler ran had to wait for its end.
fn delivered_since(
    this: &ThreadState,
    first: Option<FirstSample>,
    context: *mut c_void,
) -> Option<u64> {
    let (first, ended_ns) = (first?, this.budget.ended_ns());
    if first.time_ns <= ended_ns {
        return Some(ended_ns);
    }
    // SAFETY: the kernel gives a ucontext to an SA_SIGINFO handler.
    let pc = unsafe { Registers::from_ucontext(context) }.pc;
    (first.in_user && first.ip == pc).then_some(first.time_ns)
}

fn serve(this: &ThreadState, mut sampling: Option<Request>, context: *mut c_void) {
    let time_ns = clock::monotonic_ns();
    let is_over = sampling.is_some() && (signal::is_given_up() || Control::over_at(time_ns));
    if sampling.is_some() && !is_over {
        if this.birth.is_unfinished() {
            process::finish_fork_child(this);
            if let Some(request) = &mut sampling {
                // At or behind what the kernel saw before, and before all that is sampled from now
                // on.
                request.nonce = this.trigger.nonce();
            }
        }
        if this.has_no_samples() {
            this.record_name();
        }
    }
    // At the end of the session: what the sample stands for was before it.
    let sampling = sampling.filter(|_| !(is_over && this.birth.is_unfinished()));
    // SAFETY: the kernel gives a ucontext to an SA_SIGINFO handler.
    let registers = unsafe { Registers::from_ucontext(context) };
    let entry = Entry {
        registers: &registers,
        time_ns,
        sampling,
    };
    // SAFETY: in the handler.
    let frames = unsafe { entry::serve(this, &entry) };
    if is_over {
        this.close_account_here(ThreadEndReason::Stopped);
        this.event(EventKind::SessionOver, 0, b"");
        this.disarm();
    } else if let Some(request) = sampling {
        PROCESS.pace.obey(Control::orders());
        let used_ns = this.budget.used_since(this.used_ns());
        let switches = this.switches_with_event(time_ns);
        this.settle(PROCESS.pace.spares(used_ns, switches));
        let ended_ns = clock::monotonic_ns();
        let by_event = matches!(request.trigger, Trigger::PerfKernel | Trigger::PerfUser);
        let passed_ns = ended_ns.saturating_sub(time_ns);
        let spent_ns = match by_event {
            true => this
                .own_part(passed_ns, DOUBTED_NS, this.sampled_at_ns())
                .unwrap_or(passed_ns),
            false => passed_ns,
        };
        let sampled_ns = Some(request.sampled_ns).filter(|sampled_ns| *sampled_ns != 0);
        PROCESS.pace.sampled(Seen {
            used_ns,
            switches,
            kernel_ns: sampled_ns.map(|sampled_ns| time_ns.saturating_sub(sampled_ns)),
            handler_ns: spent_ns,
            frames: frames.map(|frames| frames as u64),
            due_ns: this.budget.spent(spent_ns, ended_ns),
        });
        match by_event {
            true => this.count_handler_time(spent_ns, PROCESS.pace.seen_ns()),
            false => this.count_handler_time(this.budget.believed_ns(), 0),
        }
        if this.budget.is_worth_a_word() {
            let text = b"walks took more than a sample may: fewer were made, each for several";
            this.event(EventKind::Note, spent_ns, text);
        }
    }
}

/// A signal that has nothing to say for itself, or no more, stands for one of the program's that
/// waits: the kernel keeps one of a number, so none is sent for those. Whether it does; then it
/// says what that one would.
///
/// # Safety
/// The information is the kernel's.
unsafe fn becomes_theirs(this: &ThreadState, information: *mut SignalInfo) -> bool {
    // SAFETY: the caller's promise.
    if unsafe { (*information).signal } != this.signal() {
        return false;
    }
    // SAFETY: the caller's promise: a siginfo is as large.
    let words = unsafe { &mut *information.cast::<Information>() };
    if this.belief.take_raised() {
        *words = signal_info::raised(this.signal());
        return true;
    }
    let due = this.belief.take_due();
    if let Some(due) = due {
        *words = due;
    }
    due.is_some()
}

/// A signal that is the program's own, or one of ours that comes too late.
fn stray(info: &SignalInfo, context: *mut c_void, this: Option<&ThreadState>) -> usize {
    if is_late(info, this) {
        PROCESS.pace.spend(PROCESS.pace.kernel_ns());
        return 0;
    }
    if let Some(this) = this
        && this.belief.is_blocked()
        && this.signal() == info.signal
    {
        keep(this, info);
        return 0;
    }
    let action = program_signal::action(info.signal);
    match action.handler {
        libc::SIG_IGN => 0,
        libc::SIG_DFL => {
            // Whatever has a code of our triggers must never reach the default action, which kills.
            if !matches!(info.code, POLL_IN..=POLL_HUP) && !signal::is_harmless(info.signal) {
                program_signal::die(info.signal);
            }
            0
        }
        handler => {
            let mask = mask_of_handler(info.signal, action, context);
            if let Some(this) = this {
                // The shim sets it, when it has left the stack that another signal of ours would
                // begin anew.
                this.shim.program_mask.set(mask);
                this.shim.sets_mask.set(sys::may_hold_back().into());
                let says = |flag: c_int| action.flags & flag as u64 != 0;
                let sp = &this.shim.saved_sp;
                // SAFETY: (both) the kernel's ucontext; the shim has pushed the handler's
                // arguments.
                unsafe {
                    if cfg!(not(feature = "outside")) {
                        this.calls.before_own(context, says(libc::SA_RESTART));
                    }
                    let on_alternate = says(libc::SA_ONSTACK);
                    sp.set(handler_stack::off_it(
                        Some(&this.handler_stack),
                        sp.get(),
                        context,
                        info.signal,
                        on_alternate,
                    ));
                };
            } else {
                sys::signal_mask(libc::SIG_SETMASK, mask);
            }
            handler
        }
    }
}

/// The program believes the signal blocked on this thread: it waits, or goes to the thread that
/// waits for it. Where the process has gone over to the other signal it is sent anew: it will be
/// blocked for real here when this handler returns, and wait as the kernel has it.
fn keep(this: &ThreadState, info: &SignalInfo) {
    let waiter = program_signal::waiter();
    if follow::is_behind(this) {
        sys::send_again(info.signal, ptr::from_ref(info).cast());
    } else if waiter != 0 && waiter != this.tid() {
        sys::send_to_thread(waiter, info.signal);
    } else {
        // SAFETY: the kernel's, and a siginfo is as large.
        this.belief
            .owe(unsafe { &*ptr::from_ref(info).cast::<Information>() });
    }
}

/// What the kernel would have done, had the action been the program's own: the mask that its
/// handler runs with.
fn mask_of_handler(signal: i32, action: KernelAction, context: *mut c_void) -> u64 {
    // SAFETY: the kernel's ucontext holds the interrupted mask there.
    let interrupted = unsafe { context.byte_add(arch::CONTEXT_MASK).cast::<u64>().read() };
    let itself = if action.flags & libc::SA_NODEFER as u64 == 0 {
        sys::bit(signal)
    } else {
        0
    };
    if action.flags & libc::SA_RESETHAND as u64 != 0 {
        program_signal::reset_handler(signal);
    }
    interrupted | action.mask | itself
}
