//! The program takes the signal that its threads are sampled by for itself, and the process goes
//! over to the other one.

use super::follow::follow;
use crate::shim;
use crate::signal;
use crate::thread::ThreadState;
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
