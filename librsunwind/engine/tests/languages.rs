//! Languages that come and go while a thread walks.
#![allow(missing_docs, clippy::undocumented_unsafe_blocks)]

mod support;

use rsunwind_engine::address::RuntimeAddress;
use rsunwind_engine::cursor::Cursor;
use rsunwind_engine::frame_buffer::FrameBuffer;
use rsunwind_engine::language::{Answer, Languages, Question, Whose};
use rsunwind_engine::last_walk::LastWalk;
use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::registers::Registers;
use rsunwind_engine::rule::UnwindRule;
use rsunwind_engine::rule::wide::WideRows;
use rsunwind_engine::rule_cache::{RuleCache, key_of};
use rsunwind_engine::unwind::{Unwinder, unwind};
use rsunwind_engine::wire::sample::{Frame, StopReason};
use std::cell::Cell;
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
