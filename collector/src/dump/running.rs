//! Threads that run: the kernel copies the stack of each at its next moment of CPU time, by a perf
//! event on that thread alone, which notices nothing.

use super::asleep;
use super::interpreted::{self, Native};
use super::stack::{KernelHalf, ThreadStack, lack};
use super::target::Target;
use super::task::Task;
use crate::cpu_rings::request::{self, Kind, Request, Tells};
use crate::cpu_rings::{Copied, Refusal, Ring, Step, What, read};
use crate::remote::unwind_copy;
use crate::unwind::Stack;
use nix::errno::Errno;
use nix::unistd::Pid;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// CPU time after which a thread is sampled, ns.
const PERIOD_NS: u64 = 200_000;
/// Bytes of a stack that are copied: a record holds 64 KiB.
const STACK_BYTES: u32 = 48 << 10;
/// Of a thread's ring, bytes: one sample.
const RING: usize = 64 << 10;
/// How long all of them are waited for. One that is ready to run may have to wait for a processor.
const PATIENCE: Duration = Duration::from_millis(600);
/// How often they are looked at.
const STEP: Duration = Duration::from_millis(2);
/// Threads that have an event at one time, at most.
const MOST_AT_ONCE: usize = 64;

/// An event on a thread.
struct Watched<'t> {
    task: &'t Task,
    ring: Ring,
    kernel: bool,
}

/// What there is of each of these threads; those that sleep by now are read as such. Some wake up
/// and go to sleep again all the time.
pub(super) fn look<'t>(target: &mut Target, tasks: &[&'t Task]) -> Vec<(&'t Task, ThreadStack)> {
    let began = Instant::now();
    let mut waiting: Vec<&Task> = tasks.iter().rev().copied().collect();
    let (mut watched, mut found) = (Vec::<Watched<'t>>::new(), Vec::new());
    while began.elapsed() < PATIENCE && !(waiting.is_empty() && watched.is_empty()) {
        while watched.len() < MOST_AT_ONCE
            && let Some(task) = waiting.pop()
        {
            match watch(task) {
                Ok(watch) => watched.push(watch),
                Err(Refusal {
                    errno: Errno::ESRCH,
                    ..
                }) => found.push((task, ThreadStack::default())), // it has ended
                // Others have the memory now.
                Err(refusal) if refusal.step == Step::Map && !watched.is_empty() => {
                    waiting.push(task);
                    break;
                }
                Err(refusal) => {
                    let stack = asleep::look_anyhow(target, task);
                    found.push((task, stack.unwrap_or_else(|| refused(&refusal))));
                }
            }
        }
        sleep(STEP);
        watched.retain_mut(|watch| {
            let stack = match watch.sample() {
                Some(copied) => Some(unwound(target, watch.task, &copied)),
                None => asleep::look(target, watch.task),
            };
            let is_done = stack.is_some();
            found.extend(stack.map(|stack| (watch.task, stack)));
            !is_done
        });
    }
    let rest = watched.iter().map(|watch| watch.task).chain(waiting);
    found.extend(rest.map(|task| {
        let stack = asleep::look_anyhow(target, task);
        (task, stack.unwrap_or_else(no_processor))
    }));
    found
}

fn watch(task: &Task) -> Result<Watched<'_>, Refusal> {
    let open = |kernel| {
        let request = Request {
            kind: Kind::CpuTime(PERIOD_NS),
            tells: Tells::Nothing,
            stack_bytes: STACK_BYTES,
            kernel,
            at_exec: false,
            watermark: 1,
        };
        let event = request::open_on_thread(&request, Pid::from_raw(task.tid.cast_signed()));
        event.map(|event| (event, kernel))
    };
    let opened = open(true).or_else(|errno| match errno {
        Errno::EACCES | Errno::EPERM => open(false),
        other => Err(other),
    });
    let refusal = |step| move |errno| Refusal { step, errno };
    let (event, kernel) = opened.map_err(refusal(Step::Open))?;
    let ring = Ring::map(event, RING).map_err(refusal(Step::Map))?;
    request::enable(ring.event());
    Ok(Watched { task, ring, kernel })
}

impl Watched<'_> {
    /// The first sample with a stack, once it is there.
    fn sample(&mut self) -> Option<Copied> {
        let (layout, mut found) = (request::layout(self.kernel), None);
        self.ring.take(|raw| {
            let record = read(&raw, &layout, Kind::CpuTime(PERIOD_NS), Tells::Nothing);
            if let Some(What::Sample(copied)) = record.map(|record| record.what)
                && found.is_none()
            {
                found = Some(*copied);
            }
        });
        found
    }
}

fn unwound(target: &mut Target, task: &Task, copied: &Copied) -> ThreadStack {
    let mut stack = ThreadStack {
        kernel: KernelHalf::Addresses(copied.kernel.clone()),
        ..ThreadStack::default()
    };
    if let Some((ip, sp, registers)) = copied.user {
        let copy = Stack {
            sp,
            bytes: &copied.stack,
            cut: copied.stack.len() == copied.room,
        };
        let frames = unwind_copy(target.code(), ip, registers, copy);
        stack.notes.extend(lack(frames.stop, true));
        let native = Native {
            frames,
            copy,
            is_older: true,
        };
        interpreted::add(target, task, native, interpreted::PATIENCE, &mut stack);
        if stack.has_lock.is_some() {
            let note =
                "its Python frames were read a moment after its native ones (--stop holds it)";
            stack.notes.push(note.to_owned());
        }
    }
    stack
}

fn refused(refusal: &Refusal) -> ThreadStack {
    ThreadStack {
        notes: vec![format!(
            "no stack of a thread that runs: {refusal}; or --stop, which stops it for a moment"
        )],
        ..ThreadStack::default()
    }
}

fn no_processor() -> ThreadStack {
    let note = "it is ready to run but got no processor while it was waited for (the machine is busy, or its CPU quota is used up); --stop reads it where it is";
    ThreadStack {
        notes: vec![note.to_owned()],
        ..ThreadStack::default()
    }
}
