//! Signals that come while a window is read are passed on at once: reading may take long, and a
//! program that is told to end has only so much time to do so.

use super::recorder::Recorder;
use crate::record::signals::{Arrival, Signals};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

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

/// Waits for what is to be read from a descriptor, so long at most; gives whether there is any.
pub(super) type Wait<'a> = dyn FnMut(BorrowedFd<'_>, Duration) -> bool + 'a;

/// Does so, and nothing else.
pub(super) fn only_wait(wanted: BorrowedFd<'_>, most: Duration) -> bool {
    wait(wanted, None, most, || {})
}

/// Passes signals on meanwhile. Gives what was asked of the agent in `asked`. The recorder is not
/// waited for.
pub(super) fn passing_on<'a>(
    signals: &'a Signals,
    recorder: &'a Recorder,
    asked: &'a mut Asks,
) -> impl FnMut(BorrowedFd<'_>, Duration) -> bool + 'a {
    let mut take = || {
        while let Some(arrival) = signals.next() {
            if pass_on(arrival, recorder) == Asks::Settings {
                *asked = Asks::Settings;
            }
        }
    };
    move |wanted, most| wait(wanted, Some(signals.as_fd()), most, &mut take)
}

fn wait(
    wanted: BorrowedFd<'_>,
    other: Option<BorrowedFd<'_>>,
    most: Duration,
    mut on_other: impl FnMut(),
) -> bool {
    let began = Instant::now();
    loop {
        let left = most.saturating_sub(began.elapsed());
        let all = [Some(wanted), other].into_iter().flatten();
        let mut all: Vec<_> = all.map(|one| PollFd::new(one, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut all, timeout) {
            Ok(_) | Err(Errno::EINTR) => on_other(),
            // Whoever reads will wait.
            Err(_) => return true,
        }
        if all.first().and_then(PollFd::any) == Some(true) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write as _};

    #[test]
    fn what_comes_meanwhile_is_taken_and_does_not_end_the_wait() {
        let (answers, mut answer) = io::pipe().unwrap();
        let (others, mut other) = io::pipe().unwrap();
        other.write_all(b"x").unwrap();
        let short = Duration::from_millis(20);
        let mut seen = 0;
        assert!(!wait(answers.as_fd(), Some(others.as_fd()), short, || {
            seen += 1
        }));
        assert!(seen > 0);
        assert!(!only_wait(answers.as_fd(), short));
        answer.write_all(b"x").unwrap();
        assert!(only_wait(answers.as_fd(), Duration::from_secs(60)));
        // Its end is told of, too.
        drop(answer);
        assert!(only_wait(answers.as_fd(), Duration::from_secs(60)));
    }
}
