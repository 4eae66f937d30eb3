//! An interpreter in Rust that has its functions on stacks: on those that the program asks for
//! itself, as here, and on those of `rsunwind record`.
//!
//! It keeps a record of each call on its own stack, and tells the profiler where the innermost is.
//! `cargo run`, in its folder, computes a factorial of 5, which takes its time, and prints the
//! lines where its functions stand in the innermost call.

use rsunwind::clients::{Client, Stack};
use rsunwind::languages::api::{self, Answer, Cursor, Description, Language};
use rsunwind::wire::sample::Method;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicUsize, compiler_fence};

/// A function of the language.
struct Function {
    name: &'static str,
    file: &'static str,
    line: u32,
}

static MAIN: Function = Function {
    name: "main chunk",
    file: "factorial.toy",
    line: 1,
};
static FACTORIAL: Function = Function {
    name: "factorial",
    file: "factorial.toy",
    line: 3,
};

/// Some tenths of a second.
const TURNS: u32 = 150_000_000;

/// A call under way; it lies in the native frame of [`Interpreter::call`].
#[repr(C)]
struct Call {
    outer: *const Call,
    function: &'static Function,
    line: u64,
}

thread_local! {
    // Without a destructor and a first-time initialiser, so that a signal handler may look at it.
    static INNERMOST: Cell<*const Call> = const { Cell::new(ptr::null()) };
}

struct Interpreter {
    client: Client,
}

impl Interpreter {
    /// Calls a function, which stands at that line.
    #[inline(never)]
    fn call(&self, function: &'static Function, line: u32, argument: u64) -> u64 {
        let outer = INNERMOST.get();
        let call = Call {
            outer,
            function,
            line: line.into(),
        };
        // The record is whole before it can be seen.
        compiler_fence(SeqCst);
        INNERMOST.set(&raw const call);
        let result = self.run(function, argument);
        INNERMOST.set(outer);
        result
    }

    #[inline(never)]
    fn run(&self, function: &'static Function, argument: u64) -> u64 {
        if ptr::eq(function, &MAIN) {
            return self.call(&FACTORIAL, 4, argument);
        }
        if argument > 1 {
            return argument * self.call(&FACTORIAL, 5, argument - 1);
        }
        for turn in 0..TURNS {
            black_box(turn);
        }
        self.client.request().expect("a client");
        1
    }
}

struct Toy;

// SAFETY: reads through the cursor alone, allocates nothing, and does not panic.
unsafe impl Language for Toy {
    const NAME: &'static CStr = c"toy";
    const HAS_ENTRIES: bool = true;

    fn entry(&self, _: &mut Cursor<'_>) -> Option<u64> {
        let innermost = INNERMOST.get() as u64;
        (innermost != 0).then_some(innermost)
    }

    fn unwind(&self, cursor: &mut Cursor<'_>) -> Answer {
        let call = cursor.entry();
        let words = (
            cursor.load(call),
            cursor.load(call + 8),
            cursor.load(call + 16),
        );
        let (Ok(outer), Ok(function), Ok(line)) = words else {
            cursor.set_entry(None);
            return Answer::Native;
        };
        cursor.set_entry((outer != 0).then_some(outer));
        let known = [&MAIN, &FACTORIAL];
        if let Some(known) = known
            .into_iter()
            .find(|one| ptr::from_ref(*one) as u64 == function)
        {
            let describe = || Description {
                name: known.name,
                file: known.file,
                first_line: known.line,
                direct: true,
                ..Description::default()
            };
            // What is refused is missing from this stack.
            let _ = cursor.frame(function, 0, line as u32, describe);
        }
        Answer::Native
    }
}

/// Lines of the language's frames on the stack seen last, from the innermost on.
static LINES: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];
static COUNT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn seen(stack: *const Stack, _: u64, _: *mut c_void) {
    // SAFETY: the stack of this call.
    let frames = unsafe { (*stack).frames() };
    let own = frames
        .iter()
        .filter(|frame| frame.method == Method::Language);
    let mut count = 0;
    for (place, frame) in LINES.iter().zip(own) {
        place.store(frame.position, Relaxed);
        count += 1;
    }
    COUNT.store(count, Relaxed);
}

fn main() {
    // SAFETY: the callback stores to atomics, and stays.
    let client = unsafe { Client::register(seen, ptr::null_mut()) }.expect("a client");
    let language = api::add(&Toy).expect("a language");
    let interpreter = Interpreter { client };
    let result = interpreter.call(&MAIN, 8, 5);
    let lines: Vec<_> = LINES[..COUNT.load(Relaxed)]
        .iter()
        .map(|line| line.load(Relaxed))
        .collect();
    println!("{result}, in lines {lines:?}");
    language.remove().expect("registered above");
}
