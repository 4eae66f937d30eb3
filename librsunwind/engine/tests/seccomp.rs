//! Filters of random instructions answer what the kernel says they do: each is put on in a process
//! of its own, which then makes the call.
//!
//! Not for aarch64, which is tested in an emulator of user mode: no kernel runs its filters.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code)]

use rsunwind_engine::seccomp::{SystemCall, answer};
use std::sync::atomic::AtomicU64;

const RETURN_A: u16 = 0x16;
const CALL: i64 = libc::SYS_getppid;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 32) % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

fn word(code: u16, jumps: (u8, u8), k: u32) -> u64 {
    u64::from(code) | u64::from(jumps.0) << 16 | u64::from(jumps.1) << 24 | u64::from(k) << 32
}

/// A program that lets all other calls through, and refuses this one with an error number that its
/// instructions come to.
fn program(random: &mut Random) -> Vec<u64> {
    const MIDDLE: u64 = 40;
    let mut words = vec![
        word(0x20, (0, 0), 0),
        word(0x15, (1, 0), CALL as u32),
        word(0x06, (0, 0), 0x7fff_0000),
    ];
    // Nothing may be loaded from memory that nothing was stored to.
    words.extend((0..16).map(|k| word(0x02, (0, 0), k)));
    for left in (0..MIDDLE).rev() {
        let number = random.next() as u32;
        let small = random.below(32) as u32;
        let any = random.pick(&[number, small, 0, 1, u32::MAX, CALL as u32]);
        let by_x = random.pick(&[0u16, 8]);
        let mut ahead = || random.below(left.min(200) + 1) as u8;
        let jumps = (ahead(), ahead());
        words.push(match random.below(8) {
            0 => {
                let words = [0, 4, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60];
                word(0x20, (0, 0), random.pick(&words))
            }
            1 => word(random.pick(&[0x80, 0x81, 0x07, 0x87, 0x84]), (0, 0), 0),
            2 => word(random.pick(&[0x00, 0x01]), (0, 0), any),
            3 => word(random.pick(&[0x60, 0x61, 0x02, 0x03]), (0, 0), small % 16),
            4 => word(random.pick(&[0x64, 0x74]) | by_x, (0, 0), small),
            5 => {
                let code = random.pick(&[0x04, 0x14, 0x24, 0x44, 0x54, 0xa4]);
                word(code | by_x, (0, 0), any)
            }
            6 => word(0x34, (0, 0), any.max(1)),
            _ => word(random.pick(&[0x15, 0x25, 0x35, 0x45]) | by_x, jumps, any),
        });
    }
    // What all of it has come to, in few bits.
    for shift in [16, 8] {
        let folded = [
            word(0x07, (0, 0), 0),
            word(0x74, (0, 0), shift),
            word(0xac, (0, 0), 0),
        ];
        words.extend(folded);
    }
    let to_error = [word(0x54, (0, 0), 0x7ff), word(0x44, (0, 0), 0x0005_0000)];
    words.extend(to_error);
    words.push(word(RETURN_A, (0, 0), 0));
    words
}

/// What the kernel makes of it: the error number, or -1 where it does not take the program.
fn by_kernel(words: &[u64], arguments: [u64; 6]) -> i32 {
    let [a, b, c, d, e, f] = arguments;
    let program = libc::sock_fprog {
        len: words.len() as u16,
        filter: words.as_ptr() as *mut libc::sock_filter,
    };
    let mut pipe = [0; 2];
    // SAFETY: the child makes system calls only, and the program outlives them.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let filter = libc::SECCOMP_MODE_FILTER;
            let is_on = libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program) == 0;
            let result = libc::syscall(CALL, a, b, c, d, e, f);
            let errno = *libc::__errno_location();
            let said = match (is_on, result) {
                (false, _) => -1,
                (_, -1) => errno,
                _ => 0,
            };
            libc::write(pipe[1], (&raw const said).cast(), 4);
            libc::_exit(0);
        }
        libc::close(pipe[1]);
        let mut said = -2i32;
        libc::read(pipe[0], (&raw mut said).cast(), 4);
        libc::close(pipe[0]);
        libc::waitpid(child, std::ptr::null_mut(), 0);
        said
    }
}

#[test]
fn random_filters_answer_as_the_kernel_runs_them() {
    let mut random = Random(0x5eed);
    let mut answers = std::collections::BTreeSet::new();
    for round in 0..400 {
        let words = program(&mut random);
        let arguments = [(); 6].map(|()| random.next());
        let kernel = by_kernel(&words, arguments);
        let shared: Vec<_> = words.iter().copied().map(AtomicU64::new).collect();
        let ours = answer(&shared, &SystemCall::with(CALL, &arguments));
        // A division by zero in x kills; there is none here.
        let ours = ours.map(|answer| (answer & 0xffff) as i32);
        assert_eq!(
            ours,
            Some(kernel),
            "round {round}: {words:x?} {arguments:x?}"
        );
        answers.insert(kernel);
    }
    // They depend on something.
    assert!(answers.len() > 100, "{}", answers.len());
}

#[test]
fn what_the_kernel_does_not_take_has_no_answer() {
    let end = word(0x06, (0, 0), 0x0005_0001);
    // A remainder, a byte, half a word, a word between two, one behind the last; a shift too far.
    for (code, k) in [
        (0x94, 3),
        (0x30, 0),
        (0x28, 0),
        (0x20, 2),
        (0x20, 64),
        (0x64, 32),
    ] {
        let words = [word(code, (0, 0), k), end];
        assert_eq!(by_kernel(&words, [0; 6]), -1, "{code:#x}");
        let shared = words.map(AtomicU64::new);
        assert_eq!(answer(&shared, &SystemCall::with(CALL, &[0; 6])), None);
    }
}
