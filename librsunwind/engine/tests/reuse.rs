//! A walk that reuses frames of the last one finds what a full walk finds: on stacks of made-up
//! programs that change in every way between two walks, and on stacks with arbitrary words.
//!
//! Frames are reused where calls leave their return address on the stack, which these programs do.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, missing_docs, clippy::undocumented_unsafe_blocks)]

mod support;

use rsunwind_engine::last_walk::{Known, LastWalk, MEMORY};
use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::registers::{FP, Registers, SP};
use rsunwind_engine::rule::UnwindRule;
use rsunwind_engine::rule::wide::{Cfa, Row, Saved};
use rsunwind_engine::rule_cache::{RuleCache, key_of};
use rsunwind_engine::unwind::Outcome;
use rsunwind_engine::wire::sample::{Frame, Method, StopReason};
use std::cell::Cell;
use support::Process;
use support::random::Random;

const MANY: usize = if cfg!(miri) { 40 } else { 4000 };
const WORDS: usize = 1 << 14;
/// Words behind the stack that nobody writes: arbitrary words may lead there.
const BEYOND: usize = 128;
/// Where the made-up code lies; nothing is mapped there.
const CODE: u64 = 0x1_0000;
/// Where the thread begins.
const ROOT: u64 = CODE - 16;
const FUNCTIONS: u64 = 24;

/// How a function finds its caller.
#[derive(Clone, Copy)]
struct Function {
    /// From the stack pointer or the frame pointer to the CFA, words.
    size: u64,
    from_fp: bool,
    /// How many words below the return address the frame pointer is saved, if it is.
    saved: Option<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    /// By a row of the wide table.
    Wide,
    /// Without a table.
    FramePointer,
    /// By a table that forgets registers.
    Drops,
}

impl Function {
    fn new(random: &mut Random) -> Self {
        let kind = match random.below(16) {
            0 => Kind::Wide,
            1 if !cfg!(miri) => Kind::FramePointer, // reads code
            2 => Kind::Drops,
            _ => Kind::Plain,
        };
        let (size, saved) = (random.below(30) + 2, random.below(3));
        let has_frame_pointer = kind == Kind::FramePointer || random.once_in(3);
        match has_frame_pointer {
            true => Self {
                size: 2,
                from_fp: true,
                saved: Some(1),
                kind,
            },
            false => Self {
                size: size + 2,
                from_fp: false,
                saved: (saved == 0).then(|| random.below(size) + 1),
                kind,
            },
        }
    }

    fn rule(&self, cache: &RuleCache) -> UnwindRule {
        let mut row = Row::new(Cfa::Offset {
            register: if self.from_fp { FP } else { SP },
            offset: (self.size * 8) as i32,
        });
        if let Some(words) = self.saved {
            row.saved[0] = Saved::At(-8 - 8 * words as i32);
        }
        row.drops = self.kind == Kind::Drops;
        match self.kind {
            Kind::FramePointer => UnwindRule::frame_pointer(StopReason::NoRow),
            Kind::Wide => {
                let index = cache.wide.insert(&row).unwrap();
                UnwindRule::wide(Method::EhFrame, index)
            }
            _ => UnwindRule::from_row(&row, Method::EhFrame).unwrap(),
        }
    }
}

/// A call on the made-up stack.
#[derive(Clone, Copy)]
struct Call {
    function: u64,
    /// Words that it has taken from the stack (`alloca`), where it has a frame pointer.
    taken: u64,
    /// What it keeps in the frame pointer's register, where it has saved that.
    value: u64,
}

impl Call {
    fn new(random: &mut Random) -> Self {
        Self {
            function: random.below(FUNCTIONS),
            taken: random.below(3) * 2,
            value: random.below(3),
        }
    }
}

/// Three pcs a function: a call returns there, or the thread stands there.
fn pc_of(call: &Call) -> u64 {
    CODE + call.function * 16 + call.value
}

struct Machine {
    process: Process,
    functions: Vec<Function>,
    stack: Vec<Cell<u64>>,
    calls: Vec<Call>,
    random: Random,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut machine = Self {
            process: Process::empty(),
            functions: Vec::new(),
            stack: (0..WORDS + BEYOND).map(|_| Cell::new(0)).collect(),
            calls: Vec::new(),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        };
        machine.link();
        machine
    }

    /// Other functions at the same addresses.
    fn link(&mut self) {
        let cache = self.process.cache;
        cache.invalidate();
        let random = &mut self.random;
        self.functions = (0..FUNCTIONS).map(|_| Function::new(random)).collect();
        let probe = cache.probe();
        for is_exact in [false, true] {
            let key = key_of(ROOT, is_exact);
            cache.insert(&probe, key, UnwindRule::root(Method::EhFrame));
        }
        for (function, number) in self.functions.iter().zip(0..) {
            for site in 0..3 {
                let pc = CODE + number * 16 + site;
                cache.insert(&probe, key_of(pc, false), function.rule(cache));
            }
            let leaf = CODE + number * 16 + 8;
            cache.insert(&probe, key_of(leaf, true), function.rule(cache));
        }
    }

    fn address(&self, word: u64) -> u64 {
        self.stack[0].as_ptr().expose_provenance() as u64 + word * 8
    }

    /// What happens between two samples.
    fn go_on(&mut self) {
        let random = &mut self.random;
        let depth = self.calls.len() as u64;
        let most = if random.once_in(40) { 300 } else { 60 };
        match random.below(8) {
            0 => {} // nothing
            1..=4 => {
                // returns, longjmp, exceptions; and calls
                let returns = random.below(depth.min(most) + 1);
                self.calls.truncate((depth - returns) as usize);
                let limit = if random.once_in(3) { most } else { 8 };
                let calls = random.below(limit);
                self.calls.extend((0..calls).map(|_| Call::new(random)));
            }
            5 => {
                // a register's value, or an alloca, somewhere
                for _ in 0..=random.below(2) {
                    let at = random.below(depth.max(1)) as usize;
                    if let Some(call) = self.calls.get_mut(at) {
                        let other = Call::new(random);
                        (call.taken, call.value) = (other.taken, other.value);
                    }
                }
            }
            6 => {
                // another stack with another function in it
                let at = random.below(depth.max(1)) as usize;
                if let Some(call) = self.calls.get_mut(at) {
                    *call = Call::new(random);
                }
            }
            _ => {
                if random.once_in(20) {
                    self.calls.clear();
                }
                if random.once_in(20) {
                    self.link(); // dlclose, dlopen
                }
            }
        }
        self.calls.truncate(400);
    }

    /// Makes the stack as the calls would have, over what was there, and the leaf's registers.
    fn lay_out(&mut self) -> Registers {
        let mut top = WORDS as u64 - 8;
        let (mut pc, mut fp) = (ROOT, 0);
        for call in &self.calls {
            let function = self.functions[call.function as usize];
            self.stack[top as usize - 1].set(pc);
            let inner = top - function.size;
            if let Some(words) = function.saved {
                self.stack[(top - 1 - words) as usize].set(fp);
                fp = call.value;
            }
            let taken = match function.from_fp {
                true => {
                    fp = self.address(inner);
                    call.taken
                }
                false => 0,
            };
            top = inner - taken;
            pc = pc_of(call);
        }
        let mut registers = Registers {
            pc: match self.calls.last() {
                Some(call) => CODE + call.function * 16 + 8,
                None => ROOT,
            },
            ..Registers::default()
        };
        registers.general[usize::from(SP.0)] = self.address(top);
        registers.general[usize::from(FP.0)] = fp;
        registers
    }

    /// Writes something that may stand on a stack somewhere on it.
    fn disturb(&mut self, registers: &Registers) {
        let low = (registers.sp() - self.address(0)) / 8;
        let at = low + self.random.below(WORDS as u64 - low);
        let word = match self.random.below(4) {
            0 => {
                let word = self.random.below(WORDS as u64);
                self.address(word)
            }
            1 => CODE + self.random.below(FUNCTIONS * 16),
            2 => self.stack[self.random.below(WORDS as u64) as usize].get(),
            _ => 0,
        };
        self.stack[at as usize].set(word);
    }

    fn walk(
        &self,
        registers: &Registers,
        room: usize,
        last: &mut LastWalk<'_>,
    ) -> (Outcome, Vec<Frame>) {
        let mut memory = StackMemory::new(self.address(0), self.address(WORDS as u64));
        let mut frames = vec![Frame::default(); room];
        let (outcome, kept) = self
            .process
            .walk_with(registers, &mut memory, &mut frames, last);
        frames.truncate(kept);
        (outcome, frames)
    }
}

/// Walks both ways after each change. Gives how many frames there were, how many were reused, and
/// how many were said to be those of the walk before.
fn compare(seed: u64, memory: usize, room: usize, is_disturbed: bool) -> [usize; 3] {
    let mut machine = Machine::new(seed);
    let mut known = vec![Known::default(); memory];
    let mut last = LastWalk::new(&mut known);
    let mut counts = [0, 0, 0];
    let mut before = Vec::new();
    for number in 0..MANY {
        machine.go_on();
        let registers = machine.lay_out();
        if is_disturbed {
            machine.disturb(&registers);
        }
        let full = machine.walk(&registers, room, &mut LastWalk::none());
        let reused = machine.walk(&registers, room, &mut last);
        assert_eq!(reused, full, "seed {seed}, memory {memory}, walk {number}");
        counts[0] += full.1.len();
        counts[1] += last.reused();
        let (walk, unchanged) = last.unchanged();
        assert_eq!(walk, if memory == 0 { 0 } else { number as u64 + 1 });
        if full.1.len().max(before.len()) < room {
            let ends = [&full.1, &before].map(|frames| frames.len().checked_sub(unchanged));
            let [new, old] = ends.map(|end| end.expect("no more than there are"));
            assert!(full.1[new..] == before[old..], "seed {seed}, walk {number}");
            counts[2] += unchanged;
        }
        before.clone_from(&full.1);
        if !is_disturbed {
            assert_eq!(full.0.stop, StopReason::Root);
            assert!(full.1.len() == (machine.calls.len() + 1).min(room));
        }
    }
    counts
}

#[test]
fn made_up_programs_are_walked_as_in_full() {
    for seed in 1..4 {
        let [all, reused, unchanged] = compare(seed, MEMORY, 1024, false);
        assert!(
            reused * 3 > all && unchanged * 8 > all,
            "of {all} frames {reused} were reused, {unchanged} said to be unchanged"
        );
    }
}

#[test]
fn with_little_memory_for_what_is_remembered_or_for_frames_too() {
    for (seed, memory, room) in [(5, 100, 1024), (6, 30, 40), (7, 10, 16), (8, MEMORY, 16)] {
        let [_, reused, _] = compare(seed, memory, room, false);
        assert!(reused > 0, "memory {memory}");
    }
    assert_eq!(compare(9, 0, 1024, false)[1], 0);
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel what can be read")]
fn stacks_with_arbitrary_words_too() {
    for seed in 11..14 {
        let [all, reused, _] = compare(seed, MEMORY, 1024, true);
        assert!(
            reused * 5 > all,
            "only {reused} of {all} frames were reused"
        );
    }
}

/// Libraries are found while walks are made, and that makes no new generation of rules.
#[test]
#[cfg_attr(miri, ignore = "looks at what is mapped")]
fn what_was_guessed_of_unknown_code_is_not_remembered() {
    let process = Process::empty();
    let row = Row::new(Cfa::Offset {
        register: SP,
        offset: 16,
    });
    let rule = UnwindRule::from_row(&row, Method::EhFrame).unwrap();
    let probe = process.cache.probe();
    process.cache.insert(&probe, key_of(CODE, true), rule);
    let code = compare as fn(u64, usize, usize, bool) -> [usize; 3] as usize as u64;
    let stack = [0, code + 1, ROOT, 0, 0, 0, 0, 0].map(Cell::new);
    let start = stack[0].as_ptr().expose_provenance() as u64;
    let mut registers = Registers {
        pc: CODE,
        ..Registers::default()
    };
    registers.general[usize::from(SP.0)] = start;
    let mut known = vec![Known::default(); MEMORY];
    let mut last = LastWalk::new(&mut known);
    let walk = |last: &mut LastWalk<'_>| {
        let mut memory = StackMemory::new(start, start + 64);
        let mut frames = vec![Frame::default(); 16];
        let (outcome, kept) = process.walk_with(&registers, &mut memory, &mut frames, last);
        frames.truncate(kept);
        (outcome, frames)
    };
    let unknown = walk(&mut last);
    assert_eq!(unknown.0.stop, StopReason::FramePointerZero);
    assert_eq!(walk(&mut last), unknown);
    process.discover();
    let full = walk(&mut LastWalk::none());
    assert_ne!(full, unknown);
    assert_eq!(walk(&mut last), full);
}
