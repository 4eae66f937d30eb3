//! The functions of V8's frames: of threads that wait where they were seen, and of those that have
//! gone on since their stacks were copied. For the latter each function has to be proved by what
//! does not move ([`engine::v8::proof`]), and was there already ([`super::sightings`]).

use super::memory::{Pages, WithStack};
use super::sightings::{Look, Sightings};
use super::{Description, Interpreters, MixedStack, language_frame};
use crate::clock::monotonic_ns;
use crate::unwind::{Code, Spot, Stack};
use engine::v8::code::{EXPRESSION, expression};
use engine::v8::frame::{Native, Standing, is_expression, standing};
use engine::v8::layout::Layout as V8;
use engine::v8::proof::Owner;
use engine::wire::code::{self, UNREADABLE};
use engine::wire::sample::{Frame, Method};
use std::time::{Duration, Instant};

/// Its place in [`super::LANGUAGES`].
const JAVASCRIPT: u8 = 1;
/// What was read for one stack is good for those that are looked at within this time.
const SHARED_NS: u64 = 5_000_000;
/// How long that may be read, at most.
const PATIENCE: Duration = Duration::from_millis(20);
/// A function's lines are counted a piece at a time, so often at most.
const MOST_PIECES: u32 = 64;

/// What is kept for threads that have gone on.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The memory that was read last, and when that began.
    read: Option<(u64, Pages)>,
    seen: Sightings,
    budget: Budget,
}

/// How long may be looked: what is read may be made to take long, and others wait meanwhile.
#[derive(Debug, Default)]
struct Budget {
    left: Duration,
    since: Option<Instant>,
}

impl Budget {
    /// This part of the time.
    const PART: u32 = 4;
    /// Of no more time than this.
    const MOST: Duration = Duration::from_millis(50);

    /// Whether there is some.
    fn renew(&mut self) -> bool {
        let now = Instant::now();
        let more = (self.since.replace(now)).map_or(Self::MOST, |since| now - since);
        self.left = (self.left + more / Self::PART).min(Self::MOST);
        !self.left.is_zero()
    }

    /// A look that began after it was renewed has ended.
    fn spend(&mut self) {
        let took = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.left = self.left.saturating_sub(took);
    }
}

impl Interpreters {
    /// The stack of a thread that has gone on since it was copied, with JavaScript's functions;
    /// `None` if too much was looked at lately, or V8's code itself was interrupted, where a frame
    /// may be missing that was being made.
    pub(crate) fn look_back(
        &mut self,
        (code, layout): (&Code, &V8),
        (pid, tid): (u32, u32),
        stack: impl DoubleEndedIterator<Item = (Frame, Spot)> + Clone,
        (copied_ns, copy): (u64, Stack<'_>),
    ) -> Option<MixedStack> {
        let is_sure = |(frame, spot): (Frame, Spot)| {
            let of_expression = |leaf| {
                let memory = WithStack {
                    pages: &Pages::of(pid, Duration::ZERO),
                    stack: Some(copy),
                };
                is_expression(&memory, &leaf, layout.expression)
            };
            !code.may_be_v8(frame.pc.0) || native(code, frame, spot).is_some_and(of_expression)
        };
        if !stack.clone().next().is_some_and(is_sure) || !self.left.budget.renew() {
            return None;
        }
        let now = monotonic_ns();
        // What was read before the copy does not say what is there since.
        let is_good = |at: u64| at >= copied_ns && now.saturating_sub(at) < SHARED_NS;
        let recent = self.left.read.take().filter(|(at, _)| is_good(*at));
        let (at, pages) = recent.unwrap_or_else(|| (now, Pages::of(pid, PATIENCE)));
        let mut mixed = MixedStack {
            frames: Vec::new(),
            lacks: false,
            has_lock: None,
            own_name: None,
        };
        let memory = WithStack {
            pages: &pages,
            stack: Some(copy),
        };
        let thread = u64::from(pid) << 32 | u64::from(tid);
        let of = (&memory, thread, copied_ns);
        let mut caller = None;
        // From the root, so that callers are known.
        for (frame, spot) in stack.rev() {
            if code.may_be_v8(frame.pc.0) {
                let at = (frame, spot, &mut caller);
                self.left_javascript_frame(of, layout, code, at, &mut mixed);
            }
            mixed.frames.push(frame);
        }
        mixed.frames.reverse();
        mixed.lacks |= pages.is_exhausted();
        self.left.read = Some((at, pages)).filter(|(_, pages)| pages.are_few());
        self.left.budget.spend();
        Some(mixed)
    }

    /// Adds the function that a frame of V8's code runs; `None` if it runs none.
    pub(super) fn javascript_frame(
        &mut self,
        (memory, thread): (&WithStack<'_>, u64),
        layout: &V8,
        code: &Code,
        (frame, spot): (Frame, Spot),
        to: &mut MixedStack,
    ) -> Option<()> {
        let native = native(code, frame, spot)?;
        let Some(standing) = standing(memory, &native) else {
            return self.expression(memory, layout, &native, to);
        };
        let shared = layout.shared(memory, standing.function)?;
        self.javascript_function((memory, thread), layout, (&native, &standing), shared, to)
    }

    /// The same of a frame that may have been left since it was copied; `caller`: where the
    /// `SharedFunctionInfo` of the function is that called it, if that is known, then its own.
    fn left_javascript_frame(
        &mut self,
        (memory, thread, copied_ns): (&WithStack<'_>, u64, u64),
        layout: &V8,
        code: &Code,
        (frame, spot, caller): (Frame, Spot, &mut Option<u64>),
        to: &mut MixedStack,
    ) -> Option<()> {
        let native = native(code, frame, spot)?;
        let Some(standing) = standing(memory, &native) else {
            return self.expression(memory, layout, &native, to);
        };
        let seen = &mut self.left.seen;
        let by_bytecodes = |array| seen.of_bytecodes(array);
        let callers = [*caller, seen.last];
        match layout.owner(memory, &native, &standing, by_bytecodes, callers) {
            Owner::Own => return None,
            Owner::Found(found) => {
                let shared = found.shared;
                let check = layout.check(memory, shared, thread);
                let look = Look {
                    thread,
                    copied_ns,
                    read_ns: monotonic_ns(),
                };
                let is_proved = seen.prove(&found, check, look);
                seen.add(&found, check, look);
                if is_proved {
                    *caller = Some(shared);
                    seen.last = *caller;
                    let of = (&native, &standing);
                    return self.javascript_function((memory, thread), layout, of, shared, to);
                }
            }
            Owner::Unknown => {}
        }
        *caller = None;
        let unreadable = code::Code {
            name: UNREADABLE.as_bytes(),
            ..code::Code::default()
        };
        self.without_function([0, 0], &unreadable, to);
        to.lacks = true;
        None
    }

    /// Adds a regular expression, if the frame is of one's code.
    fn expression(
        &mut self,
        memory: &WithStack<'_>,
        layout: &V8,
        native: &Native,
        to: &mut MixedStack,
    ) -> Option<()> {
        let is_one = is_expression(memory, native, layout.expression);
        is_one.then(|| self.without_function(EXPRESSION, &expression(), to))
    }

    /// Adds a frame that is shown as that, whatever function is behind it.
    fn without_function(
        &mut self,
        [id, check]: [u64; 2],
        code: &code::Code<'_>,
        to: &mut MixedStack,
    ) {
        let description = || Some(Description::new(JAVASCRIPT, code));
        let number = (self.descriptions).number((JAVASCRIPT, id, check), description);
        to.frames
            .extend(number.map(|number| language_frame(number, 0)));
    }

    /// Adds the function of that `SharedFunctionInfo`, which a frame runs.
    fn javascript_function(
        &mut self,
        (memory, thread): (&WithStack<'_>, u64),
        layout: &V8,
        (native, standing): (&Native, &Standing),
        shared: u64,
        to: &mut MixedStack,
    ) -> Option<()> {
        let check = layout.check(memory, shared, thread);
        if check == 0 {
            return None;
        }
        let place = layout.place(memory, native, standing, (shared, check));
        let number = self.descriptions.number((JAVASCRIPT, place.id, check), || {
            let (mut description, mut is_done) = (None, false);
            for _ in 0..MOST_PIECES {
                layout.describe(memory, shared, &place, thread, |code, is_whole| {
                    description = Some(Description::new(JAVASCRIPT, &code));
                    is_done = is_whole;
                })?;
                if is_done {
                    break;
                }
            }
            description
        });
        to.frames
            .extend(number.map(|number| language_frame(number, place.position)));
        to.lacks |= number.is_none();
        Some(())
    }
}

/// A frame in V8's code; `None` if its frame pointer is another frame's.
fn native(code: &Code, frame: Frame, spot: Spot) -> Option<Native> {
    (spot.cfa == spot.fp.checked_add(16)).then(|| Native {
        pc: frame.pc.0,
        is_exact: matches!(frame.method, Method::Registers | Method::SignalFrame),
        is_compiled: !code.is_of_file(frame.pc.0),
        sp: spot.sp,
        fp: spot.fp,
        rdi: None,
        r9: None,
        r12: None,
    })
}
