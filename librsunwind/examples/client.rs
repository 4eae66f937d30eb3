//! A program that asks its own threads for their stacks, and says what it is doing by labels:
//!
//! ```sh
//! cargo run -p rsunwind --example client
//! rsunwind record -- target/debug/examples/client && rsunwind report --by label=request
//! ```
#![allow(unsafe_code, reason = "callbacks are given plain pointers, as in C")]

use rsunwind::clients::{Client, Stack};
use rsunwind::regions::{Label, Region};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What the callback has seen. It runs as a signal handler does: it counts, and nothing else.
#[derive(Default)]
struct Seen {
    stacks: AtomicUsize,
    complete: AtomicUsize,
    deepest: AtomicUsize,
}

unsafe extern "C" fn note(stack: *const Stack, _nonce: u64, data: *mut c_void) {
    // SAFETY: `data` is what was registered, and the stack is there until this returns.
    let (seen, stack) = unsafe { (&*data.cast::<Seen>(), &*stack) };
    seen.stacks.fetch_add(1, Relaxed);
    seen.complete
        .fetch_add(usize::from(stack.stop == 0), Relaxed);
    seen.deepest.fetch_max(stack.frames().len(), Relaxed);
}

/// Work whose samples have the label, and which asks for a stack at its innermost call.
fn serve(client: &Client, request: &str, depth: u32) -> u64 {
    let _region = Region::begin(&[Label::new("request", request)]);
    descend(client, depth)
}

fn descend(client: &Client, depth: u32) -> u64 {
    if depth > 0 {
        return descend(client, depth - 1).wrapping_mul(31) + 1;
    }
    client.request().expect("this thread can be asked");
    (0..30_000_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n))
}

fn main() {
    static SEEN: Seen = Seen {
        stacks: AtomicUsize::new(0),
        complete: AtomicUsize::new(0),
        deepest: AtomicUsize::new(0),
    };
    let data = std::ptr::from_ref(&SEEN).cast_mut().cast();
    // SAFETY: the callback does what a signal handler may, and `SEEN` stays.
    let client = unsafe { Client::register(note, data) }.expect("there is room for a client");
    for (request, depth) in [("/cart", 5), ("/pay", 20)] {
        serve(&client, request, depth);
    }
    println!(
        "{} stacks, {} to the root, up to {} frames",
        SEEN.stacks.load(Relaxed),
        SEEN.complete.load(Relaxed),
        SEEN.deepest.load(Relaxed)
    );
}
