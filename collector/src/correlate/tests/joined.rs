//! Kernel samples and the user stacks of their entries: which are joined, and what becomes of the
//! others.

use super::*;
use crate::recording::example::{Chunk, head, recording};
use engine::wire::kernel::{self, KernelHead};
use engine::wire::sample::{Frame, Method, SampleHead, StopReason, flags};
use engine::wire::thread::ThreadEndReason;

/// A system call, sampled twice in the kernel, and a later one: with the kernel's own names of
/// them.
pub(super) fn one_call() -> Chunk {
    let frames = [0xffff_ffff_8100_0010u64, 0xffff_ffff_8100_0020];
    let kernel = |cursor, cookie| KernelHead {
        cursor,
        time_ns: cursor,
        user_ip: 0x1012,
        user_sp: 0x7000,
        cookie,
        ..KernelHead::default()
    };
    let heads = [kernel(60, COOKIE), kernel(64, COOKIE), kernel(90, 0)];
    let mut chunk = Chunk::new(42, 45, 9);
    let mut before: Option<KernelHead> = None;
    for head in heads {
        let last = before.replace(head);
        chunk = chunk.record(RecordKind::Kernel, |out| {
            let last = last.as_ref().map(|last| (last, &frames[..]));
            kernel::encode(out, last, &head, &frames);
        });
    }
    let user = |nonce| SampleHead {
        nonce,
        sp: 0x7000,
        ..head(nonce, 2)
    };
    let chunk = chunk.sample(user(64), &[0x1010, 0x20]);
    chunk.sample(user(90), &[0x1010, 0x20])
}

const COOKIE: u64 = 0xb_0000_0006;

#[test]
fn the_kernels_own_name_of_an_entry_stays_with_its_samples() {
    let found = read_bytes("x.rsu", recording(&[one_call()])).unwrap();
    let told = found
        .samples
        .iter()
        .filter(|s| s.kernel != KernelHalf::None);
    let told: Vec<_> = told.map(|s| (s.time_ns, s.kernel, s.cookie)).collect();
    let (merged, reused) = (KernelHalf::Merged, KernelHalf::Reused);
    assert_eq!(
        told,
        [(60, merged, COOKIE), (64, reused, COOKIE), (90, merged, 0)]
    );
}

pub(super) const PROGRAM: u64 = 0x10_0000;
const OURS: u64 = 0x20_0000;
const LIBC: u64 = 0x30_0000;
const OTHER: u64 = 0x40_0000;

/// Where the user's stack ends.
pub(super) const SP: u64 = 0x7fff_1000;

/// A process with a program, our library, a libc and another library.
pub(super) fn with_modules() -> Chunk {
    let chunk = Chunk::new(42, 42, 0);
    let modules = [
        (PROGRAM, &b"/bin/prog"[..]),
        (OURS, b"/ours"),
        (LIBC, b"/lib/libc.so.6"),
        (OTHER, b"/lib/libother.so"),
    ];
    let add = |chunk, (start, path): (u64, &[u8])| module(chunk, 1, start, path);
    modules.into_iter().fold(chunk, add)
}

/// A sample taken in kernel mode, or in user mode if it has no frames.
pub(super) fn taken(
    chunk: Chunk,
    cursor: u64,
    user_ip: u64,
    user_sp: u64,
    frames: &[u64],
) -> Chunk {
    let head = KernelHead {
        cursor,
        time_ns: cursor,
        user_ip,
        user_sp,
        ..KernelHead::default()
    };
    chunk.record(RecordKind::Kernel, |out| {
        kernel::encode(out, None, &head, frames);
    })
}

pub(super) const IN_KERNEL: [u64; 1] = [0xffff_ffff_8100_0010];

/// In every chunk the first kernel record leans on none, so each sample has a chunk of its own.
/// Reads them as one recording.
fn read_entry(samples: &[(u64, u64, u64, bool)], user: Chunk) -> Recording {
    let mut chunks = vec![with_modules()];
    for (number, (cursor, ip, sp, in_kernel)) in (1..).zip(samples) {
        let frames = if *in_kernel { &IN_KERNEL[..] } else { &[] };
        let chunk = Chunk::new(42, 42, engine::wire::chunk::FROM_RING | number);
        chunks.push(taken(chunk, *cursor, *ip, *sp, frames));
    }
    chunks.push(user);
    read_bytes("x.rsu", recording(&chunks)).unwrap()
}

/// What a kernel sample of that cursor, ip and sp is taken for beside that user stack.
fn class(kernel: (u64, u64, u64), user: Chunk) -> (KernelHalf, usize) {
    let (cursor, ip, sp) = kernel;
    let found = read_entry(&[(cursor, ip, sp, true)], user);
    let sample = &found.samples[0];
    assert_eq!(sample.time_ns, cursor);
    (sample.kernel, found.walk(sample.stack).count())
}

/// A stack that was taken in libc itself, called by the program.
fn in_libc(flags: u64) -> Chunk {
    let head = SampleHead {
        nonce: 200,
        sp: SP,
        flags,
        ..head(200, 9)
    };
    Chunk::new(42, 42, 1).sample(head, &[LIBC + 0x500, PROGRAM + 0x20])
}

#[test]
fn the_rest_of_a_call_is_not_ours_where_its_signal_comes_late() {
    const LIBRARY: u64 = 0x100_0000;
    let (build_id, at) = crate::preload_library::rest_of_call();
    let library = |build_id: &'static [u8]| {
        let found = WireModule {
            time_ns: 1,
            start: LIBRARY,
            end: LIBRARY + 0x100_0000,
            bias: LIBRARY,
            build_id,
            path: b"/preloaded",
            ours: true,
        };
        in_libc(0).record(RecordKind::Module, |out| found.encode(out))
    };
    let (late, ours) = (KernelHalf::Late, KernelHalf::Profiler);
    for (build_id, offset, expected) in [
        (build_id, at, late),
        (build_id, 0x10, ours),
        (b"another", at, ours),
    ] {
        let kernel = (150, LIBRARY + offset, SP - 0x300);
        assert_eq!(class(kernel, library(build_id)).0, expected, "{offset:#x}");
    }
}

#[test]
fn libc_holds_signals_back_only_where_nothing_else_was_sampled_meanwhile() {
    let clone = (150, LIBC + 0x700, SP - 0x60);
    assert_eq!(class(clone, in_libc(0)), (KernelHalf::Shielded, 2));
    for outside in [flags::LET_IN, flags::FROM_OUTSIDE, flags::LAST] {
        assert_eq!(class(clone, in_libc(outside)).0, KernelHalf::Late);
    }
    assert_eq!(
        class((150, PROGRAM, SP - 0x60), in_libc(0)).0,
        KernelHalf::Late
    );
    assert_eq!(
        class((150, LIBC, SP + 0x60), in_libc(0)).0,
        KernelHalf::Late
    );
    // One sample elsewhere, of either mode: the program has worked with the signal blocked.
    for in_kernel in [true, false] {
        let elsewhere = (160, PROGRAM + 0x30, SP - 0x100, in_kernel);
        let found = read_entry(&[(150, clone.1, clone.2, true), elsewhere], in_libc(0));
        assert_eq!(found.samples[0].kernel, KernelHalf::Late);
    }
}

/// What the samples of an entry are taken for whose user stack was read from outside, in a call at
/// one place; `true` for those that were taken there, `false` for others.
fn seen_from_outside(at_place: &[bool]) -> Vec<KernelHalf> {
    let numbered = (101..).zip(at_place);
    let samples: Vec<_> = numbered
        .map(|(cursor, at_place)| match at_place {
            true => (cursor, LIBC + 0x502, SP, true),
            false => (cursor, PROGRAM + 0x90, SP - 0x100, true),
        })
        .collect();
    let found = read_entry(&samples, in_libc(flags::FROM_OUTSIDE));
    found.samples.iter().map(|sample| sample.kernel).collect()
}

#[test]
fn a_stack_from_outside_is_of_the_call_in_which_the_thread_stays() {
    let (merged, reused, late) = (KernelHalf::Merged, KernelHalf::Reused, KernelHalf::Late);
    assert_eq!(seen_from_outside(&[true; 3]), [merged, reused, reused]);
    // It has been elsewhere since its last user stack: our signal was blocked.
    assert_eq!(
        seen_from_outside(&[false, true, true]),
        [late, merged, reused]
    );
    // It makes that call again and again: those between which it was seen are of one.
    let again = [true, true, false, true, false, true, true, true];
    let again = seen_from_outside(&again);
    assert_eq!(again, [late, late, late, late, late, late, merged, reused]);
    let long = [true, false, true, true, true];
    let long = seen_from_outside(&long);
    assert_eq!(long, [late, late, merged, reused, reused]);
}

#[test]
fn a_stack_from_outside_gets_no_weight_of_our_own_code() {
    let samples = [
        (110, OURS + 0x18, SP - 0x100, false),
        (120, PROGRAM + 0x90, SP - 0x100, false),
        (130, LIBC + 0x502, SP, true),
    ];
    let found = read_entry(&samples, in_libc(flags::FROM_OUTSIDE));
    let told = found
        .samples
        .iter()
        .map(|s| (s.time_ns, s.weight, s.kernel, found.walk(s.stack).count()));
    let (none, merged) = (KernelHalf::None, KernelHalf::Merged);
    let expected = [(110, 1, none, 1), (120, 1, none, 1), (130, 1, merged, 3)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn what_was_sampled_while_the_signal_was_blocked_keeps_its_weight_and_its_own_place() {
    let (work, call) = ((PROGRAM + 0x90, SP - 0x100), (LIBC + 0x20, SP - 0x140));
    let samples = [
        (110, work.0, work.1, false),
        (120, call.0, call.1, true),
        (130, work.0, work.1, false),
        (140, OURS + 0x18, SP, false),
        (200, LIBC + 0x500, SP, false),
    ];
    let found = read_entry(&samples, in_libc(flags::LET_IN));
    let told: Vec<_> = found
        .samples
        .iter()
        .map(|sample| {
            let leaf = match found.walk(sample.stack).next() {
                Some(RawFrame::Code { frame, .. }) => frame.lookup().0,
                _ => 0,
            };
            let depth = found.walk(sample.stack).count();
            (
                sample.time_ns,
                sample.weight,
                sample.kernel,
                sample.stop,
                leaf,
                depth,
            )
        })
        .collect();
    let (none, late) = (KernelHalf::None, KernelHalf::Late);
    let (blocked, root) = (StopReason::Blocked, StopReason::Root);
    let expected = [
        (110, 1, none, blocked, work.0, 1),
        (120, 1, late, blocked, 0, 1),
        (130, 1, none, blocked, work.0, 1),
        // The rest of the nine is the stack's own: the sample that it was taken for, and our own
        // code's time.
        (200, 6, none, root, LIBC + 0x500, 2),
    ];
    assert_eq!(told, expected);
    let account = found.kernel_account();
    assert_eq!((account.recorded(), account.late), (1, 1));
}

#[test]
fn what_was_sampled_while_walks_were_left_out_is_not_taken_for_blocked() {
    let samples = [
        (110, PROGRAM + 0x90, SP - 0x100, false),
        (120, LIBC + 0x20, SP - 0x140, true),
        (200, LIBC + 0x500, SP, false),
    ];
    let found = read_entry(&samples, in_libc(flags::WALKS_LEFT_OUT));
    let told = found
        .samples
        .iter()
        .map(|sample| (sample.kernel, sample.stop, sample.weight));
    let expected = [
        (KernelHalf::None, StopReason::LeftOut, 1),
        // It would be one that libc held back otherwise.
        (KernelHalf::Late, StopReason::LeftOut, 1),
        (KernelHalf::None, StopReason::Root, 7),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

/// As `record --detach` leaves it, whose program goes on.
#[test]
fn what_a_program_does_behind_the_end_of_the_session_is_no_sample() {
    let weights = |reason| {
        let end = engine::wire::thread::ThreadEnd {
            tid: 42,
            thread_key: 42_001,
            time_ns: 125,
            cpu_ns: 7_000_000,
            reason,
        };
        let user = Chunk::new(42, 42, 1).record(RecordKind::ThreadEnd, |out| end.encode(out));
        let samples = [
            (120, PROGRAM + 0x90, SP - 0x100, false),
            (130, PROGRAM + 0x90, SP - 0x100, false),
        ];
        let found = read_entry(&samples, user);
        found.samples.iter().map(|s| s.weight).sum::<u64>()
    };
    assert_eq!(weights(ThreadEndReason::Stopped), 1);
    assert_eq!(weights(ThreadEndReason::ThreadExit), 2);
}

#[test]
fn a_thread_that_never_unblocks_the_signal_is_told_from_one_that_never_comes_back() {
    let ends = |reason| {
        let end = engine::wire::thread::ThreadEnd {
            tid: 42,
            thread_key: 42_001,
            time_ns: 125,
            cpu_ns: 7_000_000,
            reason,
        };
        Chunk::new(42, 42, 1).record(RecordKind::ThreadEnd, |out| end.encode(out))
    };
    let nothing = || Chunk::new(42, 42, 1);
    let halves = |user| {
        let call = (LIBC + 0x20, SP - 0x140);
        let samples = [
            (110, LIBC + 0x90, SP - 0x100, true),
            (120, PROGRAM + 0x90, SP - 0x100, false),
            (130, call.0, call.1, true),
            (140, call.0, call.1, true),
        ];
        let found = read_entry(&samples, user);
        assert_eq!(found.samples.iter().map(|s| s.weight).sum::<u64>(), 4);
        let halves: Vec<_> = found.samples.iter().map(|s| (s.kernel, s.stop)).collect();
        halves
    };
    let (late, of_user) = (
        (KernelHalf::Late, StopReason::Blocked),
        (KernelHalf::None, StopReason::Blocked),
    );
    let orphan = (KernelHalf::Orphan, StopReason::Abandoned);
    assert_eq!(halves(nothing()), [late, of_user, orphan, orphan]);
    let stopped = halves(ends(ThreadEndReason::Stopped));
    assert_eq!(stopped, [late, of_user, orphan, orphan]);
    let exit = (KernelHalf::Exit, StopReason::Abandoned);
    let ended = halves(ends(ThreadEndReason::ThreadExit));
    assert_eq!(
        ended,
        [exit, (KernelHalf::None, StopReason::Abandoned), exit, exit]
    );
}

#[test]
fn frames_that_a_signal_interrupted_are_entries_too() {
    // The handler of the program was entered first; ours began in it.
    let frame = |pc, method| Frame::native(engine::address::RuntimeAddress(pc), method);
    let frames = vec![
        frame(PROGRAM + 0x300, Method::Registers),
        frame(LIBC + 0x800, Method::EhFrame),
        frame(LIBC + 0x120, Method::SignalFrame),
        frame(PROGRAM + 0x20, Method::EhFrame),
    ];
    let head = SampleHead {
        nonce: 200,
        sp: SP - 0x900,
        flags: flags::LAST,
        ..head(200, 1)
    };
    let user = || Chunk::new(42, 42, 1).sample_of(head, frames.clone());
    let found = class((150, LIBC + 0x120, SP), user());
    assert_eq!(found, (KernelHalf::Merged, 3));
    // With a sample taken elsewhere in between the thread had gone on, and may have come back from
    // another way to the same place.
    let (there, elsewhere) = ((LIBC + 0x120, SP), (LIBC + 0x20, SP));
    let samples = [there, elsewhere, there, there];
    let samples: Vec<_> = (140..)
        .zip(samples)
        .map(|(cursor, (ip, sp))| (cursor, ip, sp, true))
        .collect();
    let found = read_entry(&samples, user());
    let halves: Vec<_> = found.samples.iter().map(|s| s.kernel).collect();
    let (late, merged, reused) = (KernelHalf::Late, KernelHalf::Merged, KernelHalf::Reused);
    assert_eq!(halves, [late, late, merged, reused]);
    // A joined sample's stack is where its time went, also if that was the thread's last.
    assert!(found.samples.iter().all(|sample| sample.flags == 0));
}
