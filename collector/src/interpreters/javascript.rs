//! The functions of V8's frames: of threads that wait where they were seen, and of those that have
//! gone on since their stacks were copied. For the latter each function has to be proved by what
//! does not move ([`engine::v8::proof`]).

use super::memory::{Pages, WithStack};
use super::{Description, Interpreters, MixedStack, language_frame};
use crate::unwind::{Code, Spot, Stack};
use engine::v8::frame::{Native, Standing, standing};
use engine::v8::layout::Layout as V8;
use engine::v8::proof::Owner;
use engine::wire::code::{self, UNREADABLE};
use engine::wire::sample::{Frame, Method};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Its place in [`super::LANGUAGES`].
const JAVASCRIPT: u8 = 1;
/// What was read for one stack is good for those that are looked at within this time.
const SHARED: Duration = Duration::from_millis(5);
/// How long that may be read, at most.
const PATIENCE: Duration = Duration::from_millis(20);
/// A function's lines are counted a piece at a time, so often at most.
const MOST_PIECES: u32 = 64;

/// What is kept for threads that have gone on.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The memory that was read last, and when that began.
    read: Option<(Instant, Pages)>,
    proved: Proved,
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

/// The `SharedFunctionInfo`s of functions that were proved to be on a stack.
#[derive(Debug, Default)]
struct Proved {
    by_bytecodes: HashMap<u64, u64>,
    last: Option<u64>,
}

impl Proved {
    /// So many are remembered.
    const MOST: usize = 1 << 16;

    fn add(&mut self, shared: u64, bytecodes: Option<u64>) {
        if self.by_bytecodes.len() >= Self::MOST {
            self.by_bytecodes.clear();
        }
        self.by_bytecodes
            .extend(bytecodes.map(|array| (array, shared)));
        self.last = Some(shared);
    }
}

impl Interpreters {
    /// The stack of a thread that has gone on since it was copied, with JavaScript's functions;
    /// `None` if too much was looked at lately.
    pub(crate) fn look_back(
        &mut self,
        (code, layout): (&Code, &V8),
        (pid, tid): (u32, u32),
        native: impl DoubleEndedIterator<Item = (Frame, Spot)>,
        copy: Stack<'_>,
    ) -> Option<MixedStack> {
        if !self.left.budget.renew() {
            return None;
        }
        let recent = self
            .left
            .read
            .take()
            .filter(|(at, _)| at.elapsed() < SHARED);
        let (at, pages) = recent.unwrap_or_else(|| (Instant::now(), Pages::of(pid, PATIENCE)));
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
        let of = (&memory, u64::from(pid) << 32 | u64::from(tid));
        // From the root, so that callers are known.
        for (frame, spot) in native.rev() {
            if code.may_be_v8(frame.pc.0) {
                self.left_javascript_frame(of, layout, code, (frame, spot), &mut mixed);
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
        let standing = standing(memory, &native)?;
        let shared = layout.shared(memory, standing.function)?;
        self.javascript_function((memory, thread), layout, (&native, &standing), shared, to)
    }

    /// The same of a frame that may have been left since it was copied.
    fn left_javascript_frame(
        &mut self,
        (memory, thread): (&WithStack<'_>, u64),
        layout: &V8,
        code: &Code,
        (frame, spot): (Frame, Spot),
        to: &mut MixedStack,
    ) -> Option<()> {
        let native = native(code, frame, spot)?;
        let standing = standing(memory, &native)?;
        let proved = &mut self.left.proved;
        let by_bytecodes = |array| proved.by_bytecodes.get(&array).copied();
        match layout.owner(memory, &native, &standing, by_bytecodes, proved.last) {
            Owner::Own => None,
            Owner::Proved { shared, bytecodes } => {
                proved.add(shared, bytecodes);
                self.javascript_function((memory, thread), layout, (&native, &standing), shared, to)
            }
            Owner::Unknown => {
                let unreadable = code::Code {
                    name: UNREADABLE.as_bytes(),
                    ..code::Code::default()
                };
                let description = || Some(Description::new(JAVASCRIPT, &unreadable));
                let number = self.descriptions.number((JAVASCRIPT, 0, 0), description);
                to.frames
                    .extend(number.map(|number| language_frame(number, 0)));
                to.lacks = true;
                None
            }
        }
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
