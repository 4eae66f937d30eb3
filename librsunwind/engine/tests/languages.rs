//! Languages that come and go while a thread walks.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod support;

use rsunwind_engine::address::RuntimeAddress;
use rsunwind_engine::cursor::Cursor;
use rsunwind_engine::frame_buffer::FrameBuffer;
use rsunwind_engine::language::{Answer, Languages, Question, Whose};
use rsunwind_engine::last_walk::LastWalk;
use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::registers::{Registers, SP};
use rsunwind_engine::rule::UnwindRule;
use rsunwind_engine::rule::wide::{Cfa, Row, WideRows};
use rsunwind_engine::rule_cache::{RuleCache, key_of, native_key};
use rsunwind_engine::unwind::{Unwinder, unwind};
use rsunwind_engine::wire::sample::{Frame, Method, StopReason};
use std::cell::Cell;
use std::ops::Range;
use support::Process;

/// Nothing is mapped there.
const CODE: u64 = 0x1_0000;

/// One language has gone and another come to its place just before the walk begins.
#[derive(Debug)]
struct Another<'a> {
    cache: &'a RuleCache,
    asked: Cell<Option<Whose>>,
}

impl Languages for Another<'_> {
    fn begin(&self, _: &Cursor, _: &mut StackMemory) {
        self.cache.invalidate();
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
    fn ask(&self, asked: &Question<'_>, _: &mut StackMemory, _: &mut FrameBuffer<'_>) -> Answer {
        self.asked.set(Some(asked.whose));
        Answer::End
    }
    fn meet(&self, _: Range<u64>, _: Option<u32>, _: &mut FrameBuffer<'_>) -> Option<u64> {
        None
    }

    fn finish(&self, _: &Cursor, _: StopReason, _: &mut StackMemory, _: &mut FrameBuffer<'_>) {}
}

#[test]
fn a_language_is_not_asked_by_the_rules_of_the_one_before_it() {
    let process = Process::empty();
    let registers = Registers {
        pc: CODE,
        ..Registers::default()
    };
    let another = Another {
        cache: process.cache,
        asked: Cell::new(None),
    };
    let unwinder = Unwinder {
        modules: &process,
        cache: process.cache,
        preference: process.preference,
        languages: Some(&another),
    };
    let rule = UnwindRule::language(0);
    process
        .cache
        .insert(&process.cache.probe(), key_of(CODE, true), rule);
    let mut frames = [Frame::default(); 8];
    let mut buffer = FrameBuffer::new(&mut frames);
    let mut memory = StackMemory::new(0, 0);
    let last = &mut LastWalk::none();
    let outcome = unwind(&unwinder, &registers, &mut memory, &mut buffer, last);
    assert_eq!(another.asked.get(), None);
    assert_ne!(
        outcome.stop,
        StopReason::Root,
        "which the language would have said"
    );
}

/// What a language has on a stack, by the addresses of its entries.
#[derive(Debug)]
struct Entries {
    all: Vec<u64>,
    met: Cell<usize>,
    /// Whether it needs to know nothing of a frame but where it is.
    is_modest: bool,
    asked: Cell<usize>,
}

impl Entries {
    fn take(&self, native: Range<u64>, frames: &mut FrameBuffer<'_>) {
        let next = self.all.get(self.met.get()).copied();
        assert!(next.is_some_and(|next| native.contains(&next)));
        self.met.set(self.met.get() + 1);
        frames.push_frame(Frame {
            pc: RuntimeAddress(next.unwrap()),
            method: Method::Language,
            position: 7,
        });
    }
}

impl Languages for Entries {
    fn begin(&self, _: &Cursor, _: &mut StackMemory) {
        self.met.set(0);
    }
    fn entry(&self, from: u64) -> Option<u64> {
        let left = self.all[self.met.get()..].iter();
        left.copied().find(|entry| *entry >= from)
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
        if asked.whose == Whose::Entry {
            self.take(asked.cursor.sp()..asked.cfa.unwrap(), frames);
        }
        Answer::Native
    }
    fn meet(
        &self,
        native: Range<u64>,
        code: Option<u32>,
        frames: &mut FrameBuffer<'_>,
    ) -> Option<u64> {
        // Code is that of another language.
        if !self.is_modest || code.is_some_and(|language| language != 0) {
            return None;
        }
        while self.entry(native.start).is_some_and(|it| it < native.end) {
            self.take(native.clone(), frames);
        }
        Some(self.entry(native.end).unwrap_or(u64::MAX))
    }
    fn finish(&self, _: &Cursor, _: StopReason, _: &mut StackMemory, _: &mut FrameBuffer<'_>) {}
}

/// Frames of four words: some have one entry, some two, some none, some code of a language's.
#[test]
#[cfg(target_arch = "x86_64")]
fn what_is_given_on_the_way_is_what_is_given_when_asked() {
    const DEPTH: u64 = 60;
    const SIZE: u64 = 32;
    let process = Process::empty();
    let cfa = Cfa::Offset {
        register: SP,
        offset: SIZE as i32,
    };
    let native = UnwindRule::from_row(&Row::new(cfa), Method::EhFrame).unwrap();
    let probe = process.cache.probe();
    let mut stack = vec![0u64; (SIZE / 8 * (DEPTH + 40)) as usize];
    let base = stack.as_mut_ptr() as u64;
    let mut sp = base + SIZE * 20;
    let registers = Registers {
        pc: CODE,
        ..Registers::default()
    };
    let mut registers = registers;
    registers.general[usize::from(SP.0)] = sp;
    let mut all = Vec::new();
    for frame in 0..DEPTH {
        let key = key_of(CODE + frame * 16, frame == 0);
        let (rule, key) = match frame % 7 {
            2 => (UnwindRule::language(0), key),
            4 => (UnwindRule::language(1), key),
            _ => (native, key),
        };
        process.cache.insert(&probe, key, rule);
        process.cache.insert(&probe, native_key(key), native);
        all.extend((0..frame % 3).map(|entry| sp + entry * 8));
        sp += SIZE;
        stack[((sp - 8 - base) / 8) as usize] = CODE + (frame + 1) * 16;
    }
    stack[((sp - 8 - base) / 8) as usize] = 0;
    let walks = |is_modest: bool| {
        let entries = Entries {
            all: all.clone(),
            met: Cell::new(0),
            is_modest,
            asked: Cell::new(0),
        };
        let unwinder = Unwinder {
            modules: &process,
            cache: process.cache,
            preference: process.preference,
            languages: Some(&entries),
        };
        let last = support::new_last_walk();
        let found: Vec<_> = (0..5)
            .map(|_| {
                let mut frames = vec![Frame::default(); 1024];
                let mut buffer = FrameBuffer::new(&mut frames);
                let mut memory = StackMemory::new(base, base + stack.len() as u64 * 8);
                let outcome = unwind(&unwinder, &registers, &mut memory, &mut buffer, last);
                let count = buffer.finish().kept;
                frames.truncate(count);
                assert_eq!(entries.met.get(), all.len());
                (frames, outcome)
            })
            .collect();
        (found, entries.asked.get())
    };
    let (on_the_way, few) = walks(true);
    let (when_asked, many) = walks(false);
    assert_eq!(on_the_way, when_asked);
    assert_eq!(on_the_way[0].0.len() as u64, DEPTH + all.len() as u64);
    assert!(few > 0 && few * 3 < many, "{few} of {many}");
}
