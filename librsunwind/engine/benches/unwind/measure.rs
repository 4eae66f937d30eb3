//! One unwinder in one process: signals on random stacks, time of the walks in their handler, and
//! their instructions, counted by the parent, which steps through them with ptrace.

use crate::changes::{self, CASES};
use crate::generate::{DEPTH, Program, Random};
use crate::walkers::{Walk, Walker};
use std::arch::x86_64::_rdtsc;
use std::ffi::c_void;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;

const STACKS: u64 = 500;
const COLD: u64 = 10;
const STEPPED: u64 = 1;

/// What one process found, per frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    pub warm: f64,
    pub steady: f64,
    pub cold: f64,
    pub instructions: f64,
    /// Of [`CASES`].
    pub changed: [f64; CASES.len()],
}

const WORDS: usize = 4 + CASES.len();

/// Cycles of the time stamp counter per ns.
pub fn clock_ghz() -> f64 {
    let start = std::time::Instant::now();
    let from = unsafe { _rdtsc() };
    std::thread::sleep(std::time::Duration::from_millis(100));
    (unsafe { _rdtsc() } - from) as f64 / start.elapsed().as_nanos() as f64
}

/// Cycles between two readings of the counter with nothing between them, on average: on some
/// machines it counts in steps that are longer. Of many averages the lowest, which nothing came
/// into.
fn cycles_of_readings() -> f64 {
    let average = |_| {
        let from = unsafe { _rdtsc() };
        let last = (0..1000).fold(from, |_, _| unsafe { _rdtsc() });
        (last - from) as f64 / 1000.0
    };
    (0..100).map(average).fold(f64::MAX, f64::min)
}

/// Forks, measures, and gives what the child found.
pub fn in_child(walker: &Walker, program: &Program, ghz: f64, with_instructions: bool) -> Numbers {
    unsafe {
        let mut pipe = [0; 2];
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            let numbers = measure(walker, program, ghz, with_instructions);
            let mut words = [0.0; WORDS];
            let (first, rest) = words.split_at_mut(4);
            first.copy_from_slice(&[
                numbers.warm,
                numbers.steady,
                numbers.cold,
                numbers.instructions,
            ]);
            rest.copy_from_slice(&numbers.changed);
            let bytes = words.map(f64::to_ne_bytes);
            libc::write(pipe[1], bytes.as_ptr().cast(), WORDS * 8);
            libc::_exit(0);
        }
        libc::close(pipe[1]);
        let (status, steps) = follow(child);
        let mut bytes = [0; WORDS * 8];
        let read = std::fs::File::from_raw_fd(pipe[0]).read_exact(&mut bytes);
        assert!(
            read.is_ok() && status == 0,
            "{} failed: {status:#x}",
            walker.name
        );
        let value = |i: usize| f64::from_ne_bytes(bytes[i * 8..][..8].try_into().unwrap());
        Numbers {
            warm: value(0),
            steady: value(1),
            cold: value(2),
            instructions: steps as f64 / value(3),
            changed: std::array::from_fn(|case| value(4 + case)),
        }
    }
}

/// Waits for the child's end, and counts its instructions between stops.
unsafe fn follow(child: i32) -> (i32, u64) {
    let (mut status, mut steps, mut counting) = (0, 0u64, false);
    loop {
        unsafe { libc::waitpid(child, &mut status, 0) };
        if !libc::WIFSTOPPED(status) {
            return (status, steps);
        }
        let signal = libc::WSTOPSIG(status);
        let deliver = match signal {
            libc::SIGSTOP => {
                counting = !counting;
                0
            }
            libc::SIGTRAP => {
                steps += 1;
                0
            }
            other => other,
        };
        let request = if counting {
            libc::PTRACE_SINGLESTEP
        } else {
            libc::PTRACE_CONT
        };
        unsafe { libc::ptrace(request, child, 0, deliver) };
    }
}

/// What the handler does, and what it found.
struct Task {
    walk: Box<dyn Walk>,
    mode: Mode,
    /// Of the walk, without what reading them takes.
    cycles: f64,
    readings: f64,
    frames: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Once,
    Repeat,
    Stepped,
}

static mut TASK: Option<Task> = None;

fn task() -> &'static mut Task {
    unsafe { (*(&raw mut TASK)).as_mut().unwrap() }
}

extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    let task = task();
    match task.mode {
        Mode::Once => {
            let from = unsafe { _rdtsc() };
            task.frames = task.walk.walk(context) as u64;
            let cycles = unsafe { _rdtsc() } - from;
            task.cycles = cycles as f64 - task.readings;
            task.walk.remember(context);
        }
        Mode::Repeat => {
            let mut times = [0; 101];
            for time in &mut times {
                let from = unsafe { _rdtsc() };
                for _ in 0..10 {
                    task.frames = task.walk.walk(context) as u64;
                }
                *time = unsafe { _rdtsc() } - from;
            }
            times.sort_unstable();
            task.cycles = (times[50] as f64 - task.readings) / 10.0;
        }
        Mode::Stepped => {
            stop();
            task.frames = task.walk.walk(context) as u64;
            stop();
        }
    }
}

/// Tells the parent to begin or to end counting.
fn stop() {
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}

extern "C" fn hook() {
    unsafe { libc::raise(libc::SIGUSR1) };
}

fn measure(walker: &Walker, program: &Program, ghz: f64, with_instructions: bool) -> Numbers {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        TASK = Some(Task {
            walk: (walker.new)(),
            mode: Mode::Once,
            cycles: 0.0,
            readings: cycles_of_readings(),
            frames: 0,
        });
    }
    // Loads and sets up what the unwinder sets up once per process.
    hook();
    let run = |path: &[u32], mode: Mode| {
        task().mode = mode;
        (program.run)(path.as_ptr(), hook);
        let (cycles, frames) = (task().cycles, task().frames);
        assert!(
            frames as usize >= path.len(),
            "{} found only {frames} frames",
            walker.name
        );
        (cycles, frames as f64)
    };
    let stack = |number: u64, mode: Mode| {
        let path = program.path(DEPTH, &mut Random::new(number + 1));
        run(&path, mode)
    };
    let (mut cycles, mut frames) = (0.0, 0.0);
    for number in 0..COLD {
        let (c, f) = stack(number, Mode::Once);
        cycles += c;
        frames += f;
    }
    let cold = cycles / frames / ghz;
    let mut steady = (0.0, 0.0);
    for pass in 0..3 {
        for number in 0..STACKS {
            let before = preemptions();
            let (c, f) = stack(number, Mode::Once);
            if pass == 2 && preemptions() == before {
                steady = (steady.0 + c, steady.1 + f);
            }
        }
    }
    let changed = CASES.map(|case| {
        let once = |path: &[u32]| {
            let before = preemptions();
            let (cycles, frames) = run(path, Mode::Once);
            (preemptions() == before).then_some((cycles / ghz, frames))
        };
        changes::measure(&case, program, once)
    });
    let warm = (0..5)
        .map(|number| stack(number * 77, Mode::Repeat))
        .map(|(c, f)| c / f / ghz);
    let warm = median(warm.collect());
    let mut stepped = 0.0;
    if with_instructions {
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        stepped = (0..STEPPED)
            .map(|number| stack(number * 50, Mode::Stepped).1)
            .sum();
    }
    Numbers {
        warm,
        steady: steady.0 / steady.1 / ghz,
        cold,
        instructions: stepped,
        changed,
    }
}

/// How often this process has lost its processor to another: such a walk's time says nothing.
fn preemptions() -> i64 {
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_nivcsw
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
