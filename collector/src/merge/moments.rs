//! Finds the user stack for a sample of perf's: the stacks that the thread took of itself nearest
//! in time are looked through for one that was taken where the sample's user code was.
//!
//! Where the kernel named the entry to both (its cookie) that decides. Else what perf saw of the
//! user's instruction pointer does. In the kernel it is the place of the call, the same for the
//! whole entry; in user mode it moves on between two samples, but within the same function the
//! callers are the same, and those are taken.

use crate::recording::{FrameId, KernelHalf, RawFrame, Recording, StackId, ThreadId};
use crate::symbolize::{ImageId, Symbols};
use engine::address::{CodeAddress, RuntimeAddress};
use engine::wire::sample::{StopReason, flags};
use std::collections::HashMap;
use std::sync::Arc;

/// Length of the system-call instruction: a call that is restarted begins with it again.
const SYSTEM_CALL: u64 = 2;
/// How far away in time a stack from exactly there may be, ns.
const EXACT_WINDOW: u64 = 100_000_000;
/// How long an entry may last, ns: a name comes again when each processor's counter has gone round,
/// after hours at the least.
const ENTRY_WINDOW: u64 = 3_600_000_000_000;
/// How far away in time one from the same function may be, ns.
const WINDOW: u64 = 20_000_000;
/// How many stacks are looked at.
const MOST: usize = 64;

/// A stack that a thread took of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    time_ns: u64,
    pub(super) stack: StackId,
    leaf: FrameId,
    ip: u64,
    pub(super) stop: StopReason,
    /// Taken by the wrapper around the call: it is the stack of the caller of what made the call.
    pub(super) of_caller: bool,
}

impl Moment {
    /// Whether it was taken there, a restarted call included.
    const fn is_at(&self, ip: u64) -> bool {
        ip == self.ip || ip == self.ip.wrapping_add(SYSTEM_CALL)
    }
}

/// How a stack was found to be a sample's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The kernel has named both entries the same, and the instruction pointers are.
    Cookie,
    /// The instruction pointers are the same.
    Exact,
    /// They lie in the same function: its callers are taken.
    SameFunction,
    /// perf did not see the user's instruction pointer: the next stack in time.
    ByTime,
}

/// A function, whatever it is called.
type FunctionKey = (Option<ImageId>, Option<u64>, Arc<str>);

/// The stacks of all threads, by time, and the functions that their leaves are in.
#[derive(Debug)]
pub(super) struct Moments {
    of_thread: HashMap<ThreadId, Vec<Moment>>,
    /// By the kernel's names of entries.
    of_entry: HashMap<(ThreadId, u64), Moment>,
    functions: Vec<Option<FunctionKey>>,
}

impl Moments {
    /// Of a recording whose frames have these names.
    pub(super) fn new(recording: &Recording, symbols: &Symbols) -> Self {
        let mut of_thread: HashMap<ThreadId, Vec<Moment>> = HashMap::new();
        let mut of_entry = HashMap::new();
        for sample in &recording.samples {
            let alone =
                sample.kernel.is_alone() || sample.flags & (flags::LAST | flags::LET_IN) != 0;
            let user = user_part(recording, sample.stack);
            let Some((stack, leaf, ip)) = user.filter(|_| !alone) else {
                continue;
            };
            let moment = Moment {
                time_ns: sample.time_ns,
                stack,
                leaf,
                ip: if sample.entry_ip == 0 {
                    ip
                } else {
                    sample.entry_ip
                },
                stop: sample.stop,
                of_caller: sample.kernel == KernelHalf::Shielded,
            };
            of_thread.entry(sample.thread).or_default().push(moment);
            if sample.cookie != 0 {
                of_entry.insert((sample.thread, sample.cookie), moment);
            }
        }
        for all in of_thread.values_mut() {
            all.sort_by_key(|moment| moment.time_ns);
        }
        let key = |place: &Option<u32>| {
            let place = &symbols.places[(*place)? as usize];
            let outer = place.functions.last()?;
            Some((place.image, outer.start, outer.function.clone()))
        };
        Self {
            of_thread,
            of_entry,
            functions: symbols.of_frame.iter().map(key).collect(),
        }
    }

    /// The stack for a sample of a thread, whose user code was at `ip`, which has been given
    /// `frame`; `cookie` is the kernel's name of its entry, or 0.
    pub(super) fn find(
        &self,
        thread: ThreadId,
        time_ns: u64,
        user: Option<(u64, FrameId)>,
        cookie: u64,
    ) -> Option<(Found, Moment)> {
        let all = self.of_thread.get(&thread)?;
        let entry = self.of_entry.get(&(thread, cookie));
        let near = |moment: &&Moment| moment.time_ns.abs_diff(time_ns) <= ENTRY_WINDOW;
        if let Some(moment) = entry.filter(near)
            && user.is_none_or(|(ip, _)| moment.is_at(ip))
        {
            return Some((Found::Cookie, *moment));
        }
        let Some((ip, frame)) = user else {
            let next = all.partition_point(|moment| moment.time_ns < time_ns);
            let moment = all.get(next).or(all.last())?;
            let near = moment.time_ns.abs_diff(time_ns) <= WINDOW;
            return near.then_some((Found::ByTime, *moment));
        };
        let function = self.functions.get(frame.index()).and_then(Option::as_ref);
        let mut same = None;
        for moment in nearest(all, time_ns).take(MOST) {
            let away = moment.time_ns.abs_diff(time_ns);
            if away > EXACT_WINDOW {
                break;
            }
            if moment.is_at(ip) {
                return Some((Found::Exact, *moment));
            }
            let its = self.functions.get(moment.leaf.index());
            let its = its.and_then(Option::as_ref);
            if same.is_none() && away <= WINDOW && its.is_some() && its == function {
                same = Some((Found::SameFunction, *moment));
            }
        }
        same
    }
}

/// From the nearest in time on.
fn nearest(all: &[Moment], time_ns: u64) -> impl Iterator<Item = &Moment> {
    let split = all.partition_point(|moment| moment.time_ns < time_ns);
    let (mut before, mut after) = (
        all[..split].iter().rev().peekable(),
        all[split..].iter().peekable(),
    );
    std::iter::from_fn(move || {
        let away =
            |moment: Option<&&Moment>| moment.map_or(u64::MAX, |m| m.time_ns.abs_diff(time_ns));
        if away(after.peek()) <= away(before.peek()) {
            after.next()
        } else {
            before.next()
        }
    })
}

/// The stack below the kernel's frames, its leaf, and where that was.
fn user_part(recording: &Recording, stack: Option<StackId>) -> Option<(StackId, FrameId, u64)> {
    let mut at = stack;
    while let Some(id) = at {
        let node = recording.stacks[id.index()];
        match recording.frames[node.frame.index()] {
            RawFrame::Kernel(_) => at = node.parent,
            RawFrame::Code { frame, .. } => {
                let (CodeAddress::Instruction(RuntimeAddress(ip))
                | CodeAddress::Return(RuntimeAddress(ip))) = frame;
                return Some((id, node.frame, ip));
            }
            RawFrame::Language { .. }
            | RawFrame::Missing
            | RawFrame::Elided(_)
            | RawFrame::Lost => return None,
        }
    }
    None
}

/// What a joined sample is called in accounts.
pub(super) const fn half(in_kernel: bool) -> KernelHalf {
    if in_kernel {
        KernelHalf::Merged
    } else {
        KernelHalf::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::read_bytes;
    use crate::recording::example::{Chunk, head, recording};
    use crate::symbolize::{Places, symbolize};
    use engine::wire::kernel::KernelHead;
    use engine::wire::sample::SampleHead;

    const PLACE: u64 = 0x1310;
    const FRAMES: [u64; 1] = [0xffff_ffff_8100_0010];

    /// A call made from the same place by two callers, 10 ms apart; the kernel has named both.
    fn two_calls(cookies: [u64; 2]) -> Recording {
        let mut chunk = Chunk::new(10, 10, 0);
        let calls = [(60, cookies[0], 0x1151), (70, cookies[1], 0x1251)];
        for (cursor, cookie, caller) in calls {
            let kernel = KernelHead {
                cursor,
                time_ns: cursor * 1_000_000,
                user_ip: PLACE,
                user_sp: 0x7000,
                cookie,
                ..KernelHead::default()
            };
            chunk = chunk.kernel(kernel, &FRAMES);
            let user = SampleHead {
                nonce: cursor,
                sp: 0x7000,
                ..head(kernel.time_ns, 1)
            };
            chunk = chunk.sample(user, &[PLACE, caller]);
        }
        read_bytes("calls.rsu", recording(&[chunk])).unwrap()
    }

    #[test]
    fn the_kernels_name_decides_where_the_places_agree() {
        let (first, second) = (0x3_0000_0001, 0x5_0000_0001);
        let calls = two_calls([first, second]);
        let moments = Moments::new(&calls, &symbolize(&calls, &Places::default()));
        let caller = |time_ms: u64, ip, cookie| {
            let user = Some((ip, FrameId::new(0)));
            let (found, moment) =
                moments.find(ThreadId::new(0), time_ms * 1_000_000, user, cookie)?;
            let parent = calls.stacks[moment.stack.index()].parent;
            match calls.frames[calls.stacks[parent?.index()].frame.index()] {
                RawFrame::Code { frame, .. } => Some((found, frame.lookup().0 | 1)),
                _ => None,
            }
        };
        let (by_name, by_place) = (Found::Cookie, Found::Exact);
        assert_eq!(caller(60, PLACE, 0), Some((by_place, 0x1151)));
        assert_eq!(caller(60, PLACE, second), Some((by_name, 0x1251)));
        assert_eq!(caller(70, PLACE, first), Some((by_name, 0x1151)));
        assert_eq!(caller(70, PLACE + 2, second), Some((by_name, 0x1251)));
        // A name that is nobody's, and one that the place contradicts.
        assert_eq!(caller(60, PLACE, 0x7_0000_0001), Some((by_place, 0x1151)));
        assert_ne!(
            caller(60, PLACE + 0x40, second).map(|(found, _)| found),
            Some(by_name)
        );
    }
}
