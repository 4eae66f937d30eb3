//! `rsunwind dump`: the stacks of all threads of a process, now, and what each waits for.
//!
//! Start at [`run`]. The process is neither stopped nor signalled: threads that sleep are read from
//! outside ([`asleep`]), threads that run by a perf event on each ([`running`]); only `--stop`
//! holds them ([`stopped`]). Then everything gets its name ([`names`]).
//!
//! Not here: unwinding ([`crate::unwind`]), symbols ([`crate::symbolize`]).

mod asleep;
mod call;
mod descriptor;
mod futex;
mod interpreted;
mod names;
mod problems;
mod running;
mod show;
mod stack;
mod stopped;
mod syscalls;
mod target;
mod task;

use crate::processes;
use crate::whereabouts::Whereabouts;
use clap::Args as ClapArgs;
use names::Frame;
use stack::ThreadStack;
use std::fs;
use std::io::{self, Write as _};
use target::Target;
use task::Task;

/// Arguments of `rsunwind dump`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
The process goes on as if nobody looked: it is not stopped and gets no signal. A note below a stack says what is missing because of that.

Examples:
  rsunwind dump 1234          all threads of process 1234
  rsunwind dump nginx         by name: one process of that name after the other
  rsunwind dump --json 1234 | jq '.problems'
  rsunwind dump --stop 1234   stop one thread after the other for a moment, for registers that are not known from outside

As an ordinary user: processes of one's own, where ptrace is permitted. As root the kernel's part of stacks is shown, too.")]
pub struct Args {
    /// The process, by pid or name
    #[arg(value_name = "PID|NAME")]
    pub process: String,
    /// Stop each thread for a moment (threads in calls that this would end are left alone)
    #[arg(long)]
    pub stop: bool,
    /// For programs: a JSON object for each process
    #[arg(long)]
    pub json: bool,
}

/// Why `rsunwind dump` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such process.
    #[error(transparent)]
    Target(#[from] crate::target::Error),
    /// We may not look at it.
    #[error("process {pid} may not be looked at: {why}")]
    Refused {
        /// Which.
        pid: u32,
        /// The reason, and what would change it.
        why: String,
    },
    /// What was found could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// The exit status that says the same to a script.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Target(_) => 2,
            Self::Refused { .. } | Self::Output(_) => 1,
        }
    }
}

/// A thread with its stack.
#[derive(Debug)]
struct Thread {
    task: Task,
    stack: ThreadStack,
    /// From leaf to root.
    frames: Vec<Frame>,
}

/// A process as it was found.
#[derive(Debug)]
struct Dump {
    pid: u32,
    /// Its command line; of one without any, its name in brackets.
    command: Vec<String>,
    problems: Vec<String>,
    /// By number.
    threads: Vec<Thread>,
    notes: Vec<String>,
}

/// Looks, and prints what it found.
///
/// # Errors
/// Any [`Error`].
pub fn run(args: &Args) -> Result<(), Error> {
    let pids = crate::target::find_any(&args.process)?;
    let mut failed = None;
    for (place, pid) in pids.iter().enumerate() {
        let text = match one(pid.cast_unsigned(), args) {
            Ok(text) => text,
            // The others of that name may be looked at.
            Err(error) => {
                if let Some(before) = failed.replace(error) {
                    eprintln!("rsunwind: {before}");
                }
                continue;
            }
        };
        let gap = if place > 0 && !args.json { "\n" } else { "" };
        match write!(io::stdout(), "{gap}{text}") {
            // Whoever reads has seen enough: `rsunwind dump … | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written?,
        }
    }
    failed.map_or(Ok(()), Err)
}

fn one(pid: u32, args: &Args) -> Result<String, Error> {
    if let Err(error) = Whereabouts::ask(pid, pid)
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        return Err(Error::Refused {
            pid,
            why: refusal(pid),
        });
    }
    let dump = look(pid, args.stop);
    Ok(match args.json {
        true => format!("{:#}\n", show::json(&dump)),
        false => show::text(&dump),
    })
}

fn look(pid: u32, stop: bool) -> Dump {
    let mut target = Target::new(pid);
    let mut tids: Vec<u32> = processes::threads(pid.cast_signed())
        .into_iter()
        .map(i32::cast_unsigned)
        .collect();
    tids.sort_unstable();
    let tasks: Vec<Task> = tids.into_iter().map(|tid| Task::look(pid, tid)).collect();
    target.threads = tasks
        .iter()
        .map(|task| (task.tid, task.inner_tid))
        .collect();
    let mut stacks: Vec<Option<ThreadStack>> = tasks
        .iter()
        .map(|task| match task.state.has_ended() {
            true => Some(ThreadStack::default()),
            false if stop => stopped::look(&mut target, task),
            false => asleep::look(&mut target, task),
        })
        .collect();
    let pairs = tasks.iter().zip(&stacks);
    let runs: Vec<&Task> = pairs
        .filter(|(_, stack)| stack.is_none())
        .map(|(task, _)| task)
        .collect();
    for (task, stack) in running::look(&mut target, &runs) {
        let place = tasks.iter().position(|known| known.tid == task.tid);
        if let Some(place) = place {
            stacks[place] = Some(stack);
        }
    }
    let stacks: Vec<ThreadStack> = stacks.into_iter().map(Option::unwrap_or_default).collect();
    let (frames, notes) = names::name(&mut target, &stacks);
    let all = tasks.into_iter().zip(stacks).zip(frames);
    let threads: Vec<Thread> = all
        .map(|((mut task, stack), frames)| {
            if let Some(name) = target.own_names.remove(&task.tid) {
                task.name = name;
            }
            Thread {
                task,
                stack,
                frames,
            }
        })
        .collect();
    Dump {
        pid,
        command: command(pid),
        problems: problems::find(pid, &threads),
        threads,
        notes,
    }
}

fn command(pid: u32) -> Vec<String> {
    let identity = processes::identity(pid.cast_signed());
    let line = String::from_utf8_lossy(&identity.command).into_owned();
    let words = line.trim_end_matches('\0').split('\0');
    match line.is_empty() {
        false => words.map(str::to_owned).collect(),
        true => {
            let name = processes::name(pid.cast_signed(), pid.cast_signed());
            vec![format!("[{}]", String::from_utf8_lossy(&name))]
        }
    }
}

/// Why the kernel does not let us look, and what would change that.
fn refusal(pid: u32) -> String {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    crate::target::why_closed(pid.cast_signed()).unwrap_or_else(|| match scope.trim() {
        "" | "0" => "its memory is closed to this user: run rsunwind as root (in a container with CAP_SYS_PTRACE: docker run --cap-add SYS_PTRACE)".to_owned(),
        scope => format!("kernel.yama.ptrace_scope is {scope}: run rsunwind as root, or open processes to their own user (sudo sysctl kernel.yama.ptrace_scope=0)"),
    })
}
