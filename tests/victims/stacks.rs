//! A Rust program: every thread has std's 8 KB alternate stack, on which our signals arrive, and
//! burns at the bottom of a deep recursion.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

#[inline(never)]
fn descend(depth: u32) -> u64 {
    if depth > 0 {
        return descend(black_box(depth - 1)) + 1;
    }
    let end = Instant::now() + Duration::from_millis(300);
    let mut turns = 0u64;
    while Instant::now() < end {
        for _ in 0..1000 {
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
