//! Walks of this very process: from a capture and from signal handlers.
#![allow(
    unsafe_code,
    missing_docs,
    clippy::undocumented_unsafe_blocks,
    clippy::deref_addrof
)]

mod support;

use engine::memory::StackMemory;
use engine::registers::Registers;
use engine::wire::sample::{Frame, Method, StopReason};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use support::{Process, Stack, own_stack};

#[inline(never)]
fn deep(n: u32, leaf: &mut dyn FnMut()) -> u32 {
    if n == 0 {
        leaf();
        return 0;
    }
    std::hint::black_box(deep(n - 1, leaf) + 1)
}

#[test]
fn a_capture_walks_as_glibc_does() {
    let process = Process::new();
    std::thread::spawn(move || {
        let mut memory = own_stack();
        for round in 0..3 {
            let mut ours = None;
            let mut theirs = vec![std::ptr::null_mut::<c_void>(); 200];
            deep(40, &mut || {
                let n = unsafe { libc::backtrace(theirs.as_mut_ptr(), 200) };
                theirs.truncate(n as usize);
                let registers = Registers::capture();
                ours = Some(process.walk(&registers, &mut memory));
            });
            let ours: Stack = ours.unwrap();
            assert_eq!(ours.outcome.stop, StopReason::Root, "round {round}");
            assert_eq!(ours.outcome.flags, 0);
            let theirs: Vec<u64> = theirs.iter().map(|p| *p as u64).collect();
            // The two calls stand at different places of one function.
            assert_eq!(ours.pcs()[1..], theirs[1..], "round {round}");
            assert!(ours.methods()[1..].iter().all(|m| *m == Method::EhFrame));
        }
    })
    .join()
    .unwrap();
}

struct Handled {
    process: Process,
    memory: UnsafeCell<StackMemory>,
    frames: UnsafeCell<Vec<Frame>>,
    stop: UnsafeCell<Option<StopReason>>,
}

static mut HANDLED: Option<Handled> = None;

extern "C" fn handler(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    unsafe {
        let handled = (*(&raw const HANDLED)).as_ref().unwrap();
        let registers = Registers::capture();
        let frames = &mut *handled.frames.get();
        let (outcome, kept) =
            handled
                .process
                .walk_into(&registers, &mut *handled.memory.get(), frames);
        frames.truncate(kept);
        *handled.stop.get() = Some(outcome.stop);
        let _ = context;
    }
}

#[test]
fn a_walk_goes_through_signal_frames_on_either_stack() {
    for on_alternate_stack in [false, true] {
        std::thread::spawn(move || {
            let mut alternate = vec![0u8; 1 << 16];
            unsafe {
                let stack = libc::stack_t {
                    ss_sp: alternate.as_mut_ptr().cast(),
                    ss_flags: 0,
                    ss_size: alternate.len(),
                };
                libc::sigaltstack(&stack, std::ptr::null_mut());
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO
                    | if on_alternate_stack {
                        libc::SA_ONSTACK
                    } else {
                        0
                    };
                libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
                HANDLED = Some(Handled {
                    process: Process::new(),
                    memory: UnsafeCell::new(own_stack()),
                    frames: UnsafeCell::new(vec![Frame::default(); 256]),
                    stop: UnsafeCell::new(None),
                });
            }
            let mut theirs = vec![std::ptr::null_mut::<c_void>(); 200];
            deep(10, &mut || unsafe {
                let n = libc::backtrace(theirs.as_mut_ptr(), 200);
                theirs.truncate(n as usize);
                libc::raise(libc::SIGUSR1);
            });
            let handled = unsafe { (*(&raw const HANDLED)).as_ref().unwrap() };
            let (frames, stop) = unsafe { (&*handled.frames.get(), *handled.stop.get()) };
            assert_eq!(stop, Some(StopReason::Root));
            let interrupted = frames
                .iter()
                .position(|f| f.method == Method::SignalFrame)
                .expect("no signal frame");
            // handler, trampoline, the interrupted kill
            assert_eq!(interrupted, 2);
            let ours: Vec<u64> = frames.iter().map(|f| f.pc.0).collect();
            let theirs: Vec<u64> = theirs.iter().map(|p| *p as u64).collect();
            let callers = &theirs[1..];
            assert_eq!(&ours[ours.len() - callers.len()..], callers);
            assert!(
                ours.len() > callers.len() + 3,
                "raise and its callees are missing"
            );
        })
        .join()
        .unwrap();
    }
}
