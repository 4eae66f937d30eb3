//! The program takes the signal that its threads are sampled by for itself, and the process goes
//! over to the other one; or a seccomp filter takes away what samples need, and there are none any
//! more.

use super::follow::follow;
use crate::clock;
use crate::program_signal;
use crate::shim;
use crate::signal;
use crate::sys::{self, KernelAction, filters};
use crate::thread::ThreadState;
use engine::seccomp::SystemCall;
use engine::wire::event::EventKind;

/// The program takes the signal for itself: from now on the process uses the other one, if it has
/// not gone over before.
///
/// # Signal safety
/// Raw system calls.
pub fn leave_to_program(signal: i32, this: &ThreadState) {
    if signal::is_contested(signal)
        && shim::install(signal::other(signal)).is_ok()
        && signal::go_over(signal)
    {
        follow(this);
        let text: &[u8] = match signal {
            libc::SIGURG => {
                b"the program has a use of its own for SIGURG: SIGPROF was used instead"
            }
            _ => b"the program has a use of its own for SIGPROF: SIGURG was used instead",
        };
        this.event(EventKind::Note, 0, text);
    }
}

/// A filter is about to be put on, or a clock is gone. Where no handler can return, or none knows
/// the time, the process is not sampled any more.
pub fn give_up_if_forbidden(this: Option<&ThreadState>) {
    let may_return = filters::will_allow(&SystemCall::with(libc::SYS_rt_sigreturn, &[0; 6]));
    let knows_time =
        filters::will_allow(&SystemCall::any(libc::SYS_clock_gettime)) || clock::needs_no_call();
    if signal::is_given_up() || may_return && knows_time {
        return;
    }
    if let Some(this) = this {
        let text: &[u8] = match may_return {
            true => {
                b"a seccomp filter of the program's forbids clock_gettime: not sampled from then on"
            }
            false => {
                b"a seccomp filter of the program's forbids sigreturn: not sampled from then on"
            }
        };
        this.event(EventKind::Note, 0, text);
        this.disarm_for_good();
    }
    signal::give_up();
    if !knows_time {
        clock::avoid_counter();
    }
    if !may_return {
        signal::BY_INDEX.into_iter().for_each(leave_to_kernel);
    }
}

/// No handler is entered any more for what other threads' triggers still raise.
fn leave_to_kernel(signal: i32) {
    if !signal::is_taken(signal) {
        return;
    }
    let handler = match program_signal::action(signal).handler {
        libc::SIG_DFL if signal::is_harmless(signal) => libc::SIG_DFL,
        _ => libc::SIG_IGN,
    };
    let action = KernelAction {
        handler,
        ..KernelAction::default()
    };
    if sys::signal_action(signal, Some(&action)).is_ok() {
        signal::leave(signal);
    }
}
