//! Signals that come while a window is read are passed on at once: reading may take long, and a
//! program that is told to end has only so much time to do so.

use super::recorder::Recorder;
use crate::record::signals::{Arrival, Signals};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::io;
use std::os::fd::AsFd as _;
use std::thread;

/// What a signal asks of the agent itself, if it does; others have been passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    Nothing,
    /// Settings are to be read anew.
    Settings,
}

/// Does what a signal asks of the recording.
pub(super) fn pass_on(arrival: Arrival, recorder: &Recorder) -> Asks {
    match arrival.signal {
        Signal::SIGHUP => return Asks::Settings,
        Signal::SIGCHLD | Signal::SIGXFSZ => {}
        // A key on the terminal has reached it, too.
        _ if arrival.from_kernel => {}
        other => recorder.signal(other),
    }
    Asks::Nothing
}

/// Passes signals on while that is done. The recorder is not waited for meanwhile. Gives what was
/// asked of the agent, too.
pub(super) fn passing_on<T>(
    signals: &Signals,
    recorder: &Recorder,
    work: impl FnOnce() -> T,
) -> (T, Asks) {
    let Ok((over, done)) = io::pipe() else {
        return (work(), Asks::Nothing);
    };
    let listen = || {
        let mut asked = Asks::Nothing;
        loop {
            let mut wanted = [over.as_fd(), signals.as_fd()].map(|one| {
                // The end of a pipe is told of in any case.
                PollFd::new(one, PollFlags::POLLIN)
            });
            // An interrupted or refused poll is a short sleep.
            let _ = poll(&mut wanted, PollTimeout::NONE);
            while let Some(arrival) = signals.next() {
                if pass_on(arrival, recorder) == Asks::Settings {
                    asked = Asks::Settings;
                }
            }
            if wanted.first().and_then(PollFd::any) == Some(true) {
                return asked;
            }
        }
    };
    thread::scope(|scope| {
        // Without it they wait.
        let listens = thread::Builder::new().spawn_scoped(scope, listen);
        let made = work();
        drop(done);
        let asked = listens.map(|one| one.join().unwrap_or(Asks::Nothing));
        (made, asked.unwrap_or(Asks::Nothing))
    })
}
