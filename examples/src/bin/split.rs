//! A known split of time: of all its CPU time `half` uses 50 %, `third` 30 %, `fifth` 20 %, whatever the machine.
//!
//! ```text
//! main ─ round ─┬─ half   5 units of work
//!               ├─ third  3
//!               └─ fifth  2
//! ```
//!
//! Run it as `split [ROUNDS]`.

use rsunwind_examples::{not_a_tail_call, work};

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|argument| argument.parse().ok())
        .unwrap_or(20);
    for _ in 0..rounds {
        round();
    }
    println!("{rounds} rounds");
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
