//! How many questions are asked at once: no more than whoever answers takes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Those that are being asked.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    taken: usize,
    /// No more are taken.
    most: usize,
}

impl Turns {
    /// As many as anybody likes, until one is refused.
    pub(super) const fn new() -> Self {
        let state = State {
            taken: 0,
            most: usize::MAX,
        };
        Self {
            state: Mutex::new(state),
            ended: Condvar::new(),
        }
    }

    /// Waits until one more may be asked.
    pub(super) fn take(&self) -> Turn<'_> {
        let mut state = self.state();
        while state.taken >= state.most {
            let changed = self.ended.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
        state.taken += 1;
        Turn(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that is being asked, until this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn<'a>(&'a Turns);

impl Turn<'_> {
    /// It is one too many: from now on no more are taken than are asked beside it, if there are
    /// any. Gives whether there are.
    pub(super) fn refused(self) -> bool {
        let mut state = self.0.state();
        let others = state.taken - 1;
        state.most = state.most.min(others).max(1);
        others > 0
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().taken -= 1;
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn who_refused_waits_for_another() {
        let turns = Turns::new();
        let [one, other, third] = [turns.take(), turns.take(), turns.take()];
        assert!(third.refused());
        thread::scope(|scope| {
            let (took, taken) = channel();
            let turns = &turns;
            scope.spawn(move || {
                let turn = turns.take();
                took.send(()).unwrap();
                drop(turn);
            });
            assert!(taken.recv_timeout(Duration::from_millis(50)).is_err());
            drop(one);
            assert!(taken.recv_timeout(Duration::from_secs(60)).is_ok());
        });
        drop(other);
        assert!(!turns.take().refused(), "alone");
        drop(turns.take());
    }
}
