//! The frames of interpreters on a thread's stack, put among its native ones.

use super::stack::ThreadStack;
use super::target::Target;
use super::task::Task;
use crate::interpreters::NativeStack;
use crate::remote::RemoteStack;
use crate::unwind::Stack;
use crate::visible::visible;
use std::time::Duration;

/// How long a thread that is not held is read, at most.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);
/// Frames of all threads, about, beyond which no more are read.
const MOST_OF_ALL: usize = 400_000;

/// A stack as it was copied, with its native frames.
#[derive(Debug)]
pub(super) struct Native<'a> {
    pub(super) frames: RemoteStack,
    pub(super) copy: Stack<'a>,
    /// Whether the thread may have gone on since.
    pub(super) is_older: bool,
}

/// Takes over a stack, with the frames of interpreters as far as they can be read in that time.
/// Gives whether there are any.
pub(super) fn add(
    target: &mut Target,
    task: &Task,
    native: Native<'_>,
    patience: Duration,
    to: &mut ThreadStack,
) -> bool {
    let mut user = native.frames;
    let of = (target.pid, task.inner_tid);
    let code = target.unwinder.code(target.pid);
    let native = NativeStack {
        frames: &user.frames,
        spots: &user.spots,
        stop: user.stop,
        copy: Some(native.copy),
        is_older: native.is_older,
        wants_name: true,
    };
    let has_room = target.frames < MOST_OF_ALL;
    let mixed = match has_room {
        true => target.interpreters.look(code, of, native, patience),
        false => None,
    };
    let is_mixed = mixed.is_some();
    let lacks = mixed.as_ref().is_some_and(|mixed| mixed.lacks);
    if lacks || !has_room && code.has_interpreter() {
        let note = "its interpreter's frames are not all here: there are too many, they could not be read, or not in time";
        to.notes.push(note.to_owned());
    }
    if let Some(mixed) = mixed {
        to.has_lock = mixed.has_lock;
        if let Some(name) = mixed.own_name {
            let name = visible(&String::from_utf8_lossy(&name)).into_owned();
            target.own_names.insert(task.tid, name);
        }
        user.frames = mixed.frames;
    }
    if user.elided.0 > 0 {
        let note = format!("its middle is left out: {} frames", user.elided.0);
        to.notes.push(note);
    }
    target.frames += user.frames.len();
    to.user = Some(user);
    is_mixed
}
