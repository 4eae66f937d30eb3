//! Threads that stay in the kernel while others look at them: their stacks are read from outside,
//! which they do not notice, and unwound like copied ones.
//!
//! Not here: which threads ([`crate::record`]), and whether what was read belongs to a sample: a
//! thread may wake up at any time.

mod asleep;

pub(crate) use asleep::unwind_asleep;

use crate::processes;
use crate::remote_memory::RemoteMemory;
use crate::unwind::images::Images;
use crate::unwind::registers::{self, Cache, Registers};
use crate::unwind::{Code, Spot, Stack, Walked, walk};
use crate::whereabouts::Whereabouts;
use engine::wire::module::Module;
use engine::wire::sample::{Frame, StopReason};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// Most of a stack that is read, bytes.
pub(crate) const MOST: usize = 256 << 10;
/// The same where it is kept for a sample that may come.
const MOST_KEPT: usize = 16 << 10;
/// Deepest stack.
const DEEPEST: usize = 1024;

/// Where a thread entered the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The user's instruction pointer.
    pub ip: u64,
    /// The user's stack pointer.
    pub sp: u64,
    /// The user's frame pointer.
    pub fp: u64,
}

impl Entry {
    /// Instruction pointer and stack pointer, which `/proc` tells, too.
    #[must_use]
    pub const fn place(self) -> (u64, u64) {
        (self.ip, self.sp)
    }
}

/// A thread's stack.
#[derive(Debug)]
pub struct RemoteStack {
    /// From leaf to root.
    pub frames: Vec<Frame>,
    /// Frames left out, and behind how many.
    pub elided: (u64, u64),
    /// Why the walk ended.
    pub stop: StopReason,
    /// Whether the thread slept in the call of that entry when its stack had been read. If not, it
    /// may have been on its way.
    pub sleeps: bool,
    /// Where each frame is.
    pub(crate) spots: Vec<Spot>,
}

/// The stack of a thread that sleeps in a call in which it was not sampled yet: unwinding it takes
/// the frame pointer, which a sample tells.
#[derive(Debug)]
pub struct KeptStack {
    /// Instruction pointer and stack pointer where it entered the kernel.
    pub place: (u64, u64),
    bytes: Vec<u8>,
}

/// A file mapped into a process.
#[derive(Debug)]
struct Mapped {
    range: Range<u64>,
    bias: u64,
    build_id: Vec<u8>,
    path: Vec<u8>,
}

/// One who looks at threads of several processes.
#[derive(Default)]
pub struct RemoteUnwinder {
    images: Images,
    processes: HashMap<u32, (Code, Vec<Mapped>)>,
}

impl fmt::Debug for RemoteUnwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteUnwinder({} processes)", self.processes.len())
    }
}

impl RemoteUnwinder {
    /// Reads and unwinds the stack of a thread that is, or was a moment ago, in the kernel since
    /// that entry. `None` if it certainly is not any more, or cannot be read.
    pub fn look(&mut self, pid: u32, tid: u32, entry: Entry) -> Option<RemoteStack> {
        if !may_be_there(pid, tid, entry) {
            return None;
        }
        let bytes = RemoteMemory(pid).stack(entry.sp, MOST)?;
        let (code, _) = self.process(pid);
        let stack = unwind(code, entry, &bytes, bytes.len() == MOST);
        let whereabouts = Whereabouts::of(pid, tid);
        (whereabouts != Whereabouts::Elsewhere).then(|| RemoteStack {
            sleeps: whereabouts.is(entry.place()),
            ..stack
        })
    }

    /// Reads the stack of a thread that sleeps in the kernel, wherever it entered that.
    pub fn keep(&mut self, pid: u32, tid: u32) -> Option<KeptStack> {
        let Whereabouts::Asleep { ip, sp, .. } = Whereabouts::of(pid, tid) else {
            return None;
        };
        let bytes = RemoteMemory(pid).stack(sp, MOST_KEPT)?;
        self.process(pid);
        let place = (ip, sp);
        Whereabouts::of(pid, tid)
            .is(place)
            .then_some(KeptStack { place, bytes })
    }

    /// Unwinds what was kept, of a thread that is known by now to have entered the kernel with that
    /// frame pointer.
    pub fn unwind(&self, pid: u32, kept: &KeptStack, fp: u64) -> Option<RemoteStack> {
        let (code, _) = self.processes.get(&pid)?;
        let (ip, sp) = kept.place;
        let cut = kept.bytes.len() == MOST_KEPT;
        Some(unwind(code, Entry { ip, sp, fp }, &kept.bytes, cut))
    }

    /// The files in which frames of a process lie, as its records of them would say at that time.
    pub fn modules<'a>(
        &'a self,
        pid: u32,
        frames: &'a [Frame],
        time_ns: u64,
    ) -> impl Iterator<Item = Module<'a>> {
        let mapped = self.processes.get(&pid).map_or(&[][..], |(_, all)| all);
        let has_frame = |mapped: &&Mapped| frames.iter().any(|f| mapped.range.contains(&f.pc.0));
        mapped.iter().filter(has_frame).map(move |mapped| Module {
            time_ns,
            start: mapped.range.start,
            end: mapped.range.end,
            bias: mapped.bias,
            build_id: &mapped.build_id,
            path: &mapped.path,
            ours: false, // which only the process itself can say
        })
    }

    /// The code of a process, as it was mapped when it was asked for first.
    pub(crate) fn code(&mut self, pid: u32) -> &Code {
        &self.process(pid).0
    }

    fn process(&mut self, pid: u32) -> &(Code, Vec<Mapped>) {
        let images = &mut self.images;
        self.processes
            .entry(pid)
            .or_insert_with(|| mapped(pid.cast_signed(), images))
    }
}

/// A stack whose thread slept when it was read.
fn unwind(code: &Code, entry: Entry, bytes: &[u8], cut: bool) -> RemoteStack {
    let stack = Stack {
        sp: entry.sp,
        bytes,
        cut,
    };
    let registers = registers::resumed(entry.ip, entry.sp, entry.fp);
    unwind_copy(code, entry.ip, registers, stack)
}

/// Unwinds a stack that was copied when its thread had those registers.
pub(crate) fn unwind_copy(
    code: &Code,
    ip: u64,
    registers: Registers,
    stack: Stack<'_>,
) -> RemoteStack {
    let mut frames = vec![Frame::default(); DEEPEST];
    let mut cache = Cache::new();
    let Walked { depth, stop, spots } = walk(code, &mut cache, ip, registers, stack, &mut frames);
    frames.truncate(depth.kept);
    RemoteStack {
        frames,
        elided: (depth.elided, depth.elided_at),
        stop,
        sleeps: true,
        spots,
    }
}

fn mapped(pid: i32, images: &mut Images) -> (Code, Vec<Mapped>) {
    let (mut code, mut all) = (Code::of(pid), Vec::<Mapped>::new());
    for mapping in processes::mappings(pid) {
        let Some(image) = images.get(pid, &mapping) else {
            continue;
        };
        let same = all.iter().filter(|known| known.path == mapping.path);
        let Some((range, bias)) = image.place(&mapping, same.map(|known| &known.range)) else {
            continue;
        };
        if all.iter().all(|known| known.range != range) {
            code.add(&mapping.path, range.clone(), bias, &image);
            all.push(Mapped {
                range,
                bias,
                build_id: image.build_id.clone(),
                path: mapping.path,
            });
        }
    }
    (code, all)
}

fn may_be_there(pid: u32, tid: u32, entry: Entry) -> bool {
    let whereabouts = Whereabouts::of(pid, tid);
    whereabouts == Whereabouts::Running || whereabouts.is(entry.place())
}
