//! A Rust program: every thread has std's 8 KB alternate stack, on which our signals arrive, and
//! burns at the bottom of a deep recursion: for some time, and some turns, which take longer where
//! interrupts take nearly all of that time.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// CPU time of this thread, so that a busy machine makes no difference.
fn used() -> Duration {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    assert_eq!(unsafe { clock_gettime(3, &mut time) }, 0); // CLOCK_THREAD_CPUTIME_ID
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

#[inline(never)]
fn descend(depth: u32) -> u64 {
    if depth > 0 {
        return descend(black_box(depth - 1)) + 1;
    }
    let end = used() + Duration::from_millis(200);
    let mut turns = 0u64;
    while used() < end || turns < 30_000_000 {
        for _ in 0..100_000 {
            turns = black_box(turns.wrapping_add(1));
        }
    }
    black_box(turns) & 0
}

fn main() {
    let threads: Vec<_> = (0..4).map(|number| thread::spawn(move || descend(3000 + number))).collect();
    let sum: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{}", sum + descend(10));
}
