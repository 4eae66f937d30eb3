//! Known threads: `cargo run -p rsunwind-examples --bin crew [THREADS]` starts that many (64), each
//! of them named, and each of them does the same work at the bottom of a known stack.
//!
//! ```text
//! (thread entry) ─ … ─ member ─ shift ─ task
//! ```

use rsunwind_examples::{not_a_tail_call, work};
use std::thread::Builder;

fn main() {
    let count = std::env::args()
        .nth(1)
        .and_then(|argument| argument.parse().ok())
        .unwrap_or(64);
    let crew: Vec<_> = (0..count)
        .map(|number| {
            Builder::new()
                .name(format!("member-{number}"))
                .spawn(member)
                .expect("a thread")
        })
        .collect();
    for member in crew {
        member.join().expect("no member panics");
    }
    println!("{count} members");
}

#[inline(never)]
fn member() {
    shift();
    not_a_tail_call();
}

#[inline(never)]
fn shift() {
    task();
    not_a_tail_call();
}

#[inline(never)]
fn task() {
    work(4);
}
