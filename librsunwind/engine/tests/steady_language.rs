//! What is remembered of a language's frames is what it would have given: on made-up stacks of code
//! without tables that change in every way between two walks.
//!
//! Frames are reused where calls leave their return address on the stack, which these do.
#![cfg(target_arch = "x86_64")]
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod support;

use rsunwind_engine::address::RuntimeAddress;
use rsunwind_engine::cursor::Cursor;
use rsunwind_engine::frame_buffer::{Depth, FrameBuffer};
use rsunwind_engine::language::{Answer, Languages, Question, Steady};
use rsunwind_engine::last_walk::LastWalk;
use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::registers::{FP, Registers, SP};
use rsunwind_engine::rule::UnwindRule;
use rsunwind_engine::rule::wide::{Cfa, Row, Saved, WideRows};
use rsunwind_engine::rule_cache::{key_of, native_key};
use rsunwind_engine::unwind::{Outcome, Unwinder, unwind};
use rsunwind_engine::wire::sample::{Frame, Method, StopReason};
use std::cell::Cell;
use std::ops::Range;
use support::Process;
use support::random::Random;

const WALKS: usize = if cfg!(miri) { 40 } else { 20_000 };
const WORDS: usize = 4096;
/// Nothing is mapped there.
const CODE: u64 = 0x1_0000;
const PLACES: u64 = 25;

/// What is in the language's code at a place, of which one in five is native.
#[derive(Clone, Copy, PartialEq)]
enum Code {
    Native,
    Bare,
    /// Its frame is told by a word.
    Compiled,
    /// By two.
    Interpreted,
    /// By a word that it does not say.
    Unsteady,
}

fn code(pc: u64) -> Code {
    match (pc - CODE) / 16 % 5 {
        0 => Code::Native,
        1 => Code::Bare,
        2 => Code::Compiled,
        3 => Code::Interpreted,
        _ => Code::Unsteady,
    }
}

#[derive(Debug)]
struct Interpreter<'a> {
    stack: &'a [Cell<u64>],
    asked: &'a Cell<usize>,
    moment: u64,
}

impl Interpreter<'_> {
    fn word(&self, address: u64) -> u64 {
        let base = self.stack.as_ptr().expose_provenance() as u64;
        self.stack[((address - base) / 8) as usize].get()
    }
}

impl Languages for Interpreter<'_> {
    fn begin(&self, _: &Cursor, _: &mut StackMemory) {}
    fn moment(&self) -> u64 {
        self.moment
    }
    fn entry(&self, _: u64) -> Option<u64> {
        None
    }
    fn rule(&self, _: RuntimeAddress, _: &WideRows) -> Option<UnwindRule> {
        None
    }
    fn untabled(&self) -> Option<u32> {
        None
    }
    fn ask(
        &self,
        asked: &Question<'_>,
        _: &mut StackMemory,
        frames: &mut FrameBuffer<'_>,
    ) -> Answer {
        self.asked.set(self.asked.get() + 1);
        let fp = asked.cursor.get(FP).unwrap();
        let mut give = |pc: u64, position: u64| {
            frames.push_frame(Frame {
                pc: RuntimeAddress(pc + self.moment),
                method: Method::Language,
                position: position as u32,
            });
        };
        let [function, offset] = [fp - 16, fp - 40];
        match code(asked.cursor.pc()) {
            Code::Native => panic!("asked about native code"),
            Code::Bare => Answer::Steady(Steady::Nothing),
            Code::Compiled => {
                give(self.word(function), asked.cursor.pc());
                Answer::Steady(Steady::Frame([function, function]))
            }
            Code::Interpreted => {
                give(self.word(function), self.word(offset));
                Answer::Steady(Steady::Frame([function, offset]))
            }
            Code::Unsteady => {
                give(self.word(fp - 24), 0);
                Answer::Native
            }
        }
    }
    fn meet(&self, _: Range<u64>, _: Option<u32>, _: &mut FrameBuffer<'_>) -> Option<u64> {
        None
    }
    fn finish(&self, _: &Cursor, _: StopReason, _: &mut StackMemory, _: &mut FrameBuffer<'_>) {}
}

/// A stack, by the addresses that its frame pointers have, the outermost first.
struct Stack<'a> {
    words: &'a [Cell<u64>],
    random: Random,
    fps: Vec<u64>,
}

impl Stack<'_> {
    fn base(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }

    fn put(&self, address: u64, word: u64) {
        self.words[((address - self.base()) / 8) as usize].set(word);
    }

    fn pc(&mut self) -> u64 {
        CODE + self.random.below(PLACES) * 16
    }

    /// The words of a frame that a language reads.
    fn fill(&mut self, fp: u64) {
        for below in [16, 24, 40] {
            let word = self.random.below(3);
            self.put(fp - below, word);
        }
    }

    fn call(&mut self) {
        let outer = self.fps.last().copied();
        let end = self.base() + WORDS as u64 * 8;
        let fp = outer.unwrap_or(end - 64) - 64 - 8 * self.random.below(3);
        self.put(fp, outer.unwrap_or(0));
        let pc = outer.map_or(0, |_| self.pc());
        self.put(fp + 8, pc);
        self.fill(fp);
        self.fps.push(fp);
    }

    fn change(&mut self) {
        let which = self.random.below(self.fps.len() as u64) as usize;
        let fp = self.fps[which];
        match self.random.below(8) {
            0 => self.fill(fp),
            1 if which > 0 => {
                let pc = self.pc();
                self.put(fp + 8, pc);
            }
            2 => self.fps.truncate(which.max(1)),
            3 => self.fps.truncate(self.fps.len().saturating_sub(3).max(1)),
            _ => {}
        }
        while self.fps.len() < 20 || self.fps.len() < 90 && self.random.below(4) != 0 {
            self.call();
        }
    }
}

#[test]
fn what_is_remembered_of_a_language_is_what_it_would_give() {
    let process = Process::empty();
    let probe = process.cache.probe();
    let mut row = Row::new(Cfa::Offset {
        register: FP,
        offset: 16,
    });
    row.saved[0] = Saved::At(-16);
    let native = UnwindRule::from_row(&row, Method::EhFrame).unwrap();
    let along = UnwindRule::frame_pointer(StopReason::NoRow);
    for pc in (0..PLACES).map(|place| CODE + place * 16) {
        let key = key_of(pc, false);
        let rule = match code(pc) {
            Code::Native => native,
            _ => UnwindRule::language(0),
        };
        process.cache.insert(&probe, key, rule);
        process.cache.insert(&probe, native_key(key), along);
    }
    process.cache.insert(&probe, key_of(CODE, true), native);

    let words = vec![Cell::new(0); WORDS];
    let mut stack = Stack {
        words: &words,
        random: Random(0x9e37_79b9_7f4a_7c15),
        fps: Vec::new(),
    };
    let [asked_again, asked_in_full] = [Cell::new(0), Cell::new(0)];
    let last = support::new_last_walk();
    let (mut before, mut said_unchanged) = (Vec::new(), 0);
    stack.call();
    for number in 0..WALKS {
        stack.change();
        let mut registers = Registers {
            pc: CODE,
            ..Registers::default()
        };
        let fp = *stack.fps.last().unwrap();
        registers.general[usize::from(FP.0)] = fp;
        registers.general[usize::from(SP.0)] = fp - 40;
        // Of a stack deeper than the room both ends are there.
        let room = if number % 3 == 0 { 48 } else { 512 };
        let walk = |last: &mut LastWalk<'_>, asked| -> (Vec<Frame>, Depth, Outcome) {
            let languages = Interpreter {
                stack: &words,
                asked,
                moment: number as u64 / 50,
            };
            let unwinder = Unwinder {
                modules: &process,
                cache: process.cache,
                preference: process.preference,
                languages: Some(&languages),
            };
            let mut frames = vec![Frame::default(); room];
            let mut buffer = FrameBuffer::new(&mut frames);
            let base = words.as_ptr().expose_provenance() as u64;
            let mut memory = StackMemory::new(base, base + WORDS as u64 * 8);
            let outcome = unwind(&unwinder, &registers, &mut memory, &mut buffer, last);
            let depth = buffer.finish();
            frames.truncate(depth.kept);
            (frames, depth, outcome)
        };
        let reused = walk(last, &asked_again);
        let full = walk(&mut LastWalk::none(), &asked_in_full);
        assert_eq!(reused, full, "walk {number}");
        assert_eq!(full.2.stop, StopReason::NullPc);
        let (frames, is_whole) = (full.0, full.1.kept < room);
        if is_whole && !before.is_empty() {
            let (_, unchanged) = last.unchanged();
            let outermost = |all: &[Frame]| all[all.len() - unchanged..].to_vec();
            assert_eq!(outermost(&frames), outermost(&before), "walk {number}");
            said_unchanged += unchanged;
        }
        before = if is_whole { frames } else { Vec::new() };
    }
    let [again, full] = [asked_again.get(), asked_in_full.get()];
    assert!(again * 2 < full, "asked {again} times of {full}");
    assert!(said_unchanged > WALKS, "{said_unchanged} frames");
}
