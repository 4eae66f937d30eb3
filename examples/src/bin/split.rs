//! A known split of time: of all its CPU time `half` uses 50 %, `third` 30 %, `fifth` 20 %,
//! whatever the machine.
//!
//! ```text
//! main ─ round ─┬─ half   5 units of work
//!               ├─ third  3
//!               └─ fifth  2
//! ```
//!
//! `cargo run -p rsunwind-examples --bin split [CPU_MS]`: it works in whole rounds until it has
//! used that much CPU time (500 ms).

use rsunwind_examples::{cpu_time, not_a_tail_call, work};
use std::time::Duration;

fn main() {
    let ms = std::env::args()
        .nth(1)
        .and_then(|argument| argument.parse().ok())
        .unwrap_or(500);
    while cpu_time() < Duration::from_millis(ms) {
        round();
    }
    println!("done");
}

#[inline(never)]
fn round() {
    half();
    third();
    fifth();
    not_a_tail_call();
}

#[inline(never)]
fn half() {
    work(5);
}

#[inline(never)]
fn third() {
    work(3);
}

#[inline(never)]
fn fifth() {
    work(2);
}
