//! **Start here.** One walk: pc → rule → apply → next pc, until a [`StopReason`].
//!
//! The rule comes from the cache, or from the tables of the module that the pc lies in. Not here:
//! who asks and where the frames go (the runtime), and the fast loop over cached rules
//! ([`crate::walk`]).

use crate::cursor::Cursor;
use crate::frame_buffer::FrameBuffer;
use crate::language::{Answer, Languages, MOST_ENTRIES, Question, Steady, Whose};
use crate::last_walk::{Bounds, Known, LastWalk};
use crate::memory::StackMemory;
use crate::module_map::{Module, Modules};
use crate::registers::{FP, RETURN_ADDRESS_ON_STACK, Registers};
use crate::rule::{Kind, UnwindRule};
use crate::rule_cache::{Probe, RuleCache, key_of, native_key};
use crate::table::{self, Preference, frame_pointer, go_switch, signal_frame};
use crate::walk::{self, Pause};
use crate::wire::sample::{Method, StopReason, flags};

/// Steps by expressions that one walk may take.
const EVALUATIONS: u32 = 256;

/// What all walks of a process share.
#[derive(Debug)]
pub struct Unwinder<'a, M> {
    /// Where code is mapped.
    pub modules: &'a M,
    /// Rules found before.
    pub cache: &'a RuleCache,
    /// Which tables are asked.
    pub preference: Preference,
    /// Those who know frames that no table has, if there are any.
    pub languages: Option<&'a dyn Languages>,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it ended.
    pub stop: StopReason,
    /// Of [`flags`]: `REDONE`, `FOREIGN_STACK`.
    pub flags: u64,
}

/// Walks the stack from `registers` to its root and puts the frames, the leaf first, into `frames`.
/// `last` makes no difference but in time: it is what the last walk of the same thread has left.
///
/// # Signal safety
/// Allocates nothing, takes no locks, does not fault; bounded by the frame budget. Uses about 1.5
/// KiB of stack, 4 KiB where a table is of unusual encoding. In steady state it makes no system
/// call.
pub fn unwind<M: Modules>(
    unwinder: &Unwinder<'_, M>,
    registers: &Registers,
    memory: &mut StackMemory,
    frames: &mut FrameBuffer<'_>,
    last: &mut LastWalk<'_>,
) -> Outcome {
    memory.begin(registers.sp());
    let mut flags = if memory.is_own() {
        0
    } else {
        flags::FOREIGN_STACK
    };
    let mut walk = Walk::new(unwinder, registers);
    walk.begin(memory);
    let moment = unwinder.languages.map_or(0, Languages::moment);
    last.begin(walk.probe.whole_generation(), moment);
    let mut stop = walk.run(memory, frames, last);
    let visited = frames.visited();
    last.finish(visited);
    let is_redone = stop == StopReason::MissingRegister;
    if stop == StopReason::MissingRegister {
        memory.enter(registers.sp());
        walk.again(Effort::All, registers, memory);
        stop = walk.run(memory, frames, last);
    }
    if stop == StopReason::MissingRegister && walk.cursor.has_dropped() {
        memory.enter(registers.sp());
        walk.again(Effort::EhFrame, registers, memory);
        stop = walk.run(memory, frames, last);
        flags |= flags::REDONE;
    }
    if let Some(languages) = unwinder.languages {
        languages.finish(&walk.cursor, stop, memory, frames);
    }
    if is_redone || frames.visited() != visited {
        last.part();
    }
    Outcome { stop, flags }
}

/// How much a walk recovers. The first is enough for nearly every stack; a walk that misses a
/// register begins again with the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// Along plain rules only the frame pointer and the stack pointer.
    Frame,
    /// Every register that a call preserves.
    All,
    /// The same by `.eh_frame` alone, without the cache, because SFrame and frame pointers forget
    /// registers.
    EhFrame,
}

struct Walk<'a, 'u, M> {
    unwinder: &'u Unwinder<'a, M>,
    probe: Probe<'a>,
    cursor: Cursor,
    /// That of the last frame whose rule was not cached.
    module: Module,
    effort: Effort,
    evaluations: u32,
    passed: Passed,
}

/// What is to be remembered of the frame in a language's code that a walk has just left.
#[derive(Clone, Copy, Debug)]
enum Passed {
    /// Nothing, and it is asked about again.
    Unsteady,
    /// That there is nothing.
    Nothing,
    /// The language's frame.
    Frame(Known),
}

impl<'a, 'u, M: Modules> Walk<'a, 'u, M> {
    #[inline]
    fn new(unwinder: &'u Unwinder<'a, M>, registers: &Registers) -> Self {
        Self {
            unwinder,
            effort: Effort::Frame,
            probe: unwinder.cache.probe(),
            cursor: Cursor::new(registers),
            module: Module::default(),
            evaluations: 0,
            passed: Passed::Unsteady,
        }
    }

    #[inline]
    fn begin(&mut self, memory: &mut StackMemory) {
        // Before the rules: those of a language that goes are forgotten before another comes to
        // its place, so a rule never leads to one that was not there when it was found.
        if let Some(languages) = self.unwinder.languages {
            languages.begin(&self.cursor, memory);
            self.probe = self.unwinder.cache.probe();
        }
    }

    /// Begins anew, with more effort.
    #[cold]
    fn again(&mut self, effort: Effort, registers: &Registers, memory: &mut StackMemory) {
        *self = Self::new(self.unwinder, registers);
        self.effort = effort;
        self.begin(memory);
    }

    /// The loop.
    fn run(
        &mut self,
        memory: &mut StackMemory,
        frames: &mut FrameBuffer<'_>,
        last: &mut LastWalk<'_>,
    ) -> StopReason {
        frames.clear();
        frames.push(self.cursor.pc(), Method::Registers);
        let mut found = None;
        loop {
            let languages = self.unwinder.languages;
            let (cursor, probe) = (&mut self.cursor, &self.probe);
            let first = found.take();
            let pause = match self.effort {
                Effort::Frame => {
                    walk::run::<false>(cursor, probe, memory, frames, first, languages, last)
                }
                Effort::All => {
                    walk::run::<true>(cursor, probe, memory, frames, first, languages, last)
                }
                Effort::EhFrame => Pause::Step(self.find_rule(memory)),
            };
            let rule = match pause {
                Pause::Stop(reason) => return reason,
                Pause::Step(rule) if rule.kind() != Kind::Absent => rule,
                Pause::Step(_) | Pause::Miss => {
                    found = Some(self.find_rule(memory));
                    continue;
                }
            };
            let is_after_one = last.is_after_one();
            if self.effort == Effort::Frame {
                last.interrupt(rule, frames.visited());
            }
            if rule.kind() == Kind::Root {
                return StopReason::Root;
            }
            let stepped = match self.unwinder.languages {
                None => self.step(rule, memory),
                Some(languages) => self.step_among(languages, rule, memory, frames),
            };
            let method = match stepped {
                Ok(method) => method,
                Err(reason) => return reason,
            };
            if self.cursor.pc() == 0 {
                return StopReason::NullPc;
            }
            if !frames.push(self.cursor.pc(), method) {
                return StopReason::FrameBudget;
            }
            if rule.kind() == Kind::Language && method == Method::FramePointer {
                self.pass(is_after_one, memory, frames, last);
            }
        }
    }

    /// The walk has gone along the frame pointer of a frame in a language's code: it is remembered,
    /// and the walk goes on behind what the last one came to from there. So is what the language
    /// said of it, if that is steady; but not behind a frame that is not remembered.
    fn pass(
        &mut self,
        is_after_one: bool,
        memory: &StackMemory,
        frames: &mut FrameBuffer<'_>,
        last: &mut LastWalk<'_>,
    ) {
        let passed = core::mem::replace(&mut self.passed, Passed::Unsteady);
        let (sp, pc) = (self.cursor.sp(), self.cursor.pc());
        let is_kept = RETURN_ADDRESS_ON_STACK && self.effort == Effort::Frame && last.is_on();
        let Some(fp) = self.cursor.get(FP).filter(|_| is_kept) else {
            return;
        };
        if is_after_one {
            match passed {
                Passed::Unsteady => {}
                Passed::Nothing => last.resume(),
                Passed::Frame(known) => {
                    last.resume();
                    last.add(known);
                }
            }
        }
        let entry = self.unwinder.languages.and_then(|them| them.entry(sp));
        let (low, high) = memory.plain();
        let bounds = Bounds::of(low, high.min(entry.unwrap_or(u64::MAX)));
        if let Some(outer) = last.come([sp, pc, fp], UnwindRule::chain(), bounds, frames) {
            let valid = self.cursor.valid();
            self.cursor
                .become_caller(outer.pc, outer.sp, &[outer.fp], valid);
        }
    }

    /// Takes one step where languages may have a word in it.
    #[cold]
    fn step_among(
        &mut self,
        languages: &dyn Languages,
        mut rule: UnwindRule,
        memory: &mut StackMemory,
        frames: &mut FrameBuffer<'_>,
    ) -> Result<Method, StopReason> {
        let inner = self.cursor;
        let can_redo = match self.effort {
            Effort::Frame => true,
            Effort::All => inner.has_dropped(),
            Effort::EhFrame => false,
        };
        let mut question = Question {
            whose: Whose::Code(rule.index()),
            cursor: &inner,
            cfa: None,
            can_redo,
        };
        let mut steady = None;
        if rule.kind() == Kind::Language {
            let answer = languages.ask(&question, memory, frames);
            if let Answer::Steady(what) = answer {
                steady = Some(what);
            } else if !matches!(answer, Answer::Native) {
                return self.take_answer(answer, Method::Told);
            }
            rule = self.native_rule(memory);
        }
        let method = self.step(rule, memory)?;
        let cfa = self.cursor.sp();
        if let Some(steady) = steady
            && rule.kind() == Kind::FramePointer
            && !inner.is_exact()
            && languages.entry(inner.sp()).is_none()
        {
            let told = |places, given| Known::told(given, places, inner.sp()..cfa, memory);
            self.passed = match steady {
                Steady::Nothing => Passed::Nothing,
                Steady::Frame(places) => frames
                    .last()
                    .and_then(|given| told(places, given))
                    .map_or(Passed::Unsteady, Passed::Frame),
            };
        }
        if matches!(rule.kind(), Kind::Signal | Kind::GoSwitch) {
            return Ok(method); // to another stack
        }
        question.whose = Whose::Entry;
        question.cfa = Some(cfa);
        for _ in 0..MOST_ENTRIES {
            if languages.entry(inner.sp()).is_none_or(|entry| entry >= cfa) {
                break;
            }
            let answer = languages.ask(&question, memory, frames);
            if !matches!(answer, Answer::Native) {
                return self.take_answer(answer, method);
            }
        }
        Ok(method)
    }

    fn take_answer(&mut self, answer: Answer, method: Method) -> Result<Method, StopReason> {
        match answer {
            Answer::Native | Answer::Steady(_) => Ok(method),
            Answer::Caller(cursor) => {
                self.cursor = cursor;
                Ok(Method::Told)
            }
            Answer::MissingRegister => Err(StopReason::MissingRegister),
            Answer::End => Err(StopReason::Root),
        }
    }

    /// What the tables say of a frame that a language did not take for its own.
    fn native_rule(&mut self, memory: &mut StackMemory) -> UnwindRule {
        let key = native_key(key_of(self.cursor.pc(), self.cursor.is_exact()));
        match self.probe.find(key) {
            Some(rule) if self.effort != Effort::EhFrame => rule,
            _ => self.find_in_tables(key, memory),
        }
    }

    /// The rule of the cursor's frame: a language's, or from the tables.
    #[cold]
    fn find_rule(&mut self, memory: &mut StackMemory) -> UnwindRule {
        let key = key_of(self.cursor.pc(), self.cursor.is_exact());
        let cache = self.unwinder.cache;
        let is_cached = self.effort != Effort::EhFrame;
        if is_cached && let Some(rule) = self.probe.find_small(key) {
            cache.insert(&self.probe, key, rule);
            return rule;
        }
        let pc = self.cursor.code_address().lookup();
        let registered = self
            .unwinder
            .languages
            .and_then(|them| them.rule(pc, &cache.wide));
        if let Some(rule) = registered {
            if is_cached {
                cache.insert(&self.probe, key, rule);
            }
            return rule;
        }
        let rule = self.find_in_tables(key, memory);
        let untabled = self.unwinder.languages.and_then(|them| them.untabled());
        match untabled {
            Some(language) if rule.kind() == Kind::FramePointer => {
                let rule = UnwindRule::language(language);
                if is_cached {
                    cache.insert(&self.probe, key, rule);
                }
                rule
            }
            _ => rule,
        }
    }

    /// The rule of the cursor's frame from the tables, to be kept under that key.
    fn find_in_tables(&mut self, key: u64, memory: &mut StackMemory) -> UnwindRule {
        let cache = self.unwinder.cache;
        let preference = match self.effort {
            Effort::EhFrame => Preference::EhFrame,
            _ => self.unwinder.preference,
        };
        let modules = self.unwinder.modules;
        let (module, cursor) = (&mut self.module, &self.cursor);
        let answer = table::find_rule(modules, module, preference, cursor, memory, &cache.wide);
        if answer.keep && self.effort != Effort::EhFrame {
            cache.insert(&self.probe, key, answer.rule);
        }
        answer.rule
    }

    /// Takes one step that is more than [`walk::run`] does; gives the method that found the caller.
    #[inline(never)]
    fn step(&mut self, rule: UnwindRule, memory: &mut StackMemory) -> Result<Method, StopReason> {
        let cursor = &mut self.cursor;
        let is_taken = match self.effort {
            Effort::Frame => walk::step::<false>(cursor, rule, memory),
            _ => walk::step::<true>(cursor, rule, memory),
        };
        match rule.kind() {
            _ if is_taken => {}
            Kind::Root => return Err(StopReason::Root),
            // A language's number without a language: it has just been taken back.
            Kind::Absent | Kind::Language => return Err(StopReason::BadTable),
            Kind::Plain | Kind::Based => rule.row().apply(cursor, memory)?,
            Kind::Wide => {
                let row = self.unwinder.cache.wide.get(rule.index());
                row.ok_or(StopReason::BadTable)?.apply(cursor, memory)?;
            }
            Kind::Signal => signal_frame::step(cursor, memory)?,
            Kind::FramePointer => {
                let modules = self.unwinder.modules;
                if matches!(
                    self.unwinder.preference,
                    Preference::FramePointer | Preference::Sframe
                ) {
                    cursor.note_dropped();
                }
                return frame_pointer::step(cursor, memory, modules, rule.reason());
            }
            Kind::GoSwitch => go_switch::step(rule, cursor, memory)?,
            Kind::Evaluate => self.evaluate(memory)?,
        }
        if rule.method() == Method::Sframe {
            self.cursor.note_dropped();
        }
        Ok(rule.method())
    }

    /// Takes a step by expressions, which are read from the table again.
    fn evaluate(&mut self, memory: &mut StackMemory) -> Result<(), StopReason> {
        self.evaluations = self.evaluations.wrapping_add(1);
        if self.evaluations > EVALUATIONS {
            return Err(StopReason::TimeBudget);
        }
        let pc = self.cursor.code_address().lookup();
        let module = self.unwinder.modules.find(pc);
        let table = module.as_ref().and_then(table::eh_frame_of);
        let table = table.ok_or(StopReason::NoRow)?;
        let found = table.find(pc.0).map_err(|_| StopReason::BadTable)?;
        table.step(&found, &mut self.cursor, memory)
    }
}
