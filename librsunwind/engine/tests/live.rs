//! Walks of this very process: from a capture and from signal handlers.
#![allow(
    unsafe_code,
    missing_docs,
    clippy::undocumented_unsafe_blocks,
    clippy::deref_addrof
)]

mod support;

use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::registers::{FP, Registers, SP};
use rsunwind_engine::wire::sample::{Frame, Method, StopReason};
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

#[test]
fn a_deep_stack_keeps_both_ends_and_a_deeper_one_ends_at_the_budget() {
    let process = Process::new();
    std::thread::Builder::new()
        .stack_size(64 << 20)
        .spawn(move || {
            let mut memory = own_stack();
            let mut shallow = None;
            deep(3, &mut || {
                shallow = Some(process.walk(&Registers::capture(), &mut memory))
            });
            let shallow: Stack = shallow.unwrap();
            let mut found = None;
            deep(5000, &mut || {
                found = Some(process.walk_deep(&Registers::capture(), &mut memory, 128));
            });
            let found: Stack = found.unwrap();
            assert_eq!(found.outcome.stop, StopReason::Root);
            assert_eq!(found.frames.len(), 128);
            // The outer end is the same whatever the depth.
            let (ours, theirs) = (found.pcs(), shallow.pcs());
            assert_eq!(ours[ours.len() - 4..], theirs[theirs.len() - 4..]);
            let mut endless = None;
            deep(70_000, &mut || {
                endless = Some(process.walk(&Registers::capture(), &mut memory));
            });
            assert_eq!(endless.unwrap().outcome.stop, StopReason::FrameBudget);
        })
        .unwrap()
        .join()
        .unwrap();
}

static mut COROUTINE: Option<(Process, Stack)> = None;

extern "C" fn in_coroutine() {
    let process = Process::new();
    let stack = process.walk(&Registers::capture(), &mut StackMemory::new(0, 0));
    unsafe { COROUTINE = Some((process, stack)) };
}

/// Its first function returns to a place that nobody called from.
#[test]
fn a_coroutine_is_walked_to_its_entry() {
    let mut room = vec![0u8; 1 << 18];
    let stack = unsafe {
        let (mut here, mut there): (libc::ucontext_t, libc::ucontext_t) = std::mem::zeroed();
        assert_eq!(libc::getcontext(&mut there), 0);
        there.uc_stack.ss_sp = room.as_mut_ptr().cast();
        there.uc_stack.ss_size = room.len();
        there.uc_link = &mut here;
        libc::makecontext(&mut there, in_coroutine, 0);
        assert_eq!(libc::swapcontext(&mut here, &there), 0);
        let found = &mut *(&raw mut COROUTINE);
        found.take().unwrap().1
    };
    assert_eq!(stack.outcome.stop, StopReason::Root, "{:?}", stack.frames);
    assert_eq!(stack.frames.len(), 2, "{:?}", stack.frames);
}

/// It keeps its return address in a register while its child, on the same stack, runs.
#[test]
#[cfg(target_arch = "x86_64")]
#[allow(deprecated)] // it is read, not called
fn a_walk_begins_inside_vfork() {
    const RDI: usize = 5;
    let vfork = libc::vfork as *const () as usize;
    let code = unsafe { std::slice::from_raw_parts(vfork as *const u8, 64) };
    let call = code.windows(2).position(|code| code == [0x0f, 0x05]);
    let behind = vfork + call.expect("it makes a system call") + 2;
    let process = Process::new();
    std::thread::spawn(move || {
        let caller = Registers::capture();
        let mut inside = caller;
        inside.pc = behind as u64;
        inside.general[RDI] = caller.pc;
        let [outer, found] = [caller, inside].map(|at| process.walk(&at, &mut own_stack()));
        assert_eq!(found.outcome.stop, StopReason::Root);
        assert_eq!(found.pcs()[1..], outer.pcs());
    })
    .join()
    .unwrap();
}

/// Registers as if a thread stood at `pc` with this stack.
fn registers(pc: u64, sp: &[u64], fp: u64) -> Registers {
    let mut registers = Registers {
        pc,
        ..Registers::default()
    };
    registers.general[usize::from(SP.0)] = sp.as_ptr() as u64;
    registers.general[usize::from(FP.0)] = fp;
    registers
}

#[test]
fn broken_stacks_end_with_their_reason() {
    let process = Process::new();
    let end = |registers: &Registers| {
        let mut memory = StackMemory::new(0, 0);
        process.walk(registers, &mut memory).outcome.stop
    };
    // No code anywhere near, and no frame pointer.
    let stack = [0u64; 64];
    assert_eq!(
        end(&registers(0x1234_5678, &stack, 0)),
        StopReason::FramePointerZero
    );
    assert_eq!(
        end(&registers(0x1234_5678, &stack, 3)),
        StopReason::UnknownCode
    );
    assert_eq!(
        end(&registers(u64::MAX, &stack, u64::MAX - 7)),
        StopReason::UnknownCode
    );
    // A frame pointer to a frame whose return address is null.
    let frame = stack[8..].as_ptr() as u64;
    assert_eq!(
        end(&registers(0x1234_5678, &stack, frame)),
        StopReason::NullPc
    );
    // Code with a table, on a stack that is not there.
    let mut lost = registers(process_code(), &stack, 0);
    lost.general[usize::from(SP.0)] = 4096;
    // Where calls do not push, the first step needs the link register only, which is zero here.
    let expected = if cfg!(target_arch = "x86_64") {
        StopReason::UnreadableStack
    } else {
        StopReason::NullPc
    };
    assert_eq!(end(&lost), expected);
    // A frame pointer chain that goes in a circle is noticed.
    let mut circle = [0u64; 8];
    circle[2] = circle[2..].as_ptr() as u64;
    circle[3] = 0x1234_5678;
    let start = circle[2];
    assert_eq!(
        end(&registers(0x1234_5678, &circle, start)),
        StopReason::UnknownCode
    );
}

/// The first instruction of a function with a table.
fn process_code() -> u64 {
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"raise".as_ptr()) as u64 }
}

#[test]
fn frame_pointers_alone_follow_code_that_keeps_them() {
    // A chain made by hand, through code of no module.
    let process = Process::with(rsunwind_engine::table::Preference::FramePointer);
    let mut stack = [0u64; 32];
    let at = |index: usize, stack: &[u64]| stack[index..].as_ptr() as u64;
    (stack[4], stack[5]) = (at(10, &stack), 0x1111_1111);
    (stack[10], stack[11]) = (at(20, &stack), 0x2222_2222);
    (stack[20], stack[21]) = (0, 0x3333_3333);
    let fp = at(4, &stack);
    let mut memory = StackMemory::new(0, 0);
    let found = process.walk(&registers(0x4444_4444, &stack, fp), &mut memory);
    assert_eq!(
        found.pcs(),
        [0x4444_4444, 0x1111_1111, 0x2222_2222, 0x3333_3333]
    );
    assert_eq!(found.outcome.stop, StopReason::FramePointerZero);
    assert_eq!(
        found.outcome.flags,
        rsunwind_engine::wire::sample::flags::FOREIGN_STACK
    );
    assert!(
        found.methods()[1..]
            .iter()
            .all(|m| *m == Method::FramePointer)
    );
}
