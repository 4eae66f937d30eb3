//! The kernel's halves of samples, on their way to the user's.
//!
//! The kernel samples of an entry are written just before the user stack that the thread took on
//! its way back, whose nonce is at or above their cursors. They are joined only if the registers
//! agree; what agrees with no user stack is kept apart, with the reason.

use crate::intern::HashSet;
use crate::recording::ThreadId;
use engine::address::{CodeAddress, RuntimeAddress};
use engine::wire::WireError;
use engine::wire::kernel::{KernelHead, KernelSample};
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::SampleHead;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Length of the instruction that enters the kernel: a call that is restarted after the handler
/// begins with it again.
const SYSTEM_CALL: u64 = 2;

/// A kernel sample that waits for its user stack.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) head: KernelHead,
    /// From leaf to root; equal stacks share it.
    frames: Rc<[u64]>,
}

impl Waiting {
    /// Whether it is a sample of CPU time that was taken in user mode, for which no handler ran at
    /// once.
    pub(super) fn is_of_user_mode(&self) -> bool {
        self.head.event == CPU_EVENT && self.frames.is_empty()
    }

    /// The kernel's frames, from root to leaf.
    pub(super) fn root_first(&self) -> impl Iterator<Item = CodeAddress> + '_ {
        let last = self.frames.len().saturating_sub(1);
        self.frames
            .iter()
            .rev()
            .enumerate()
            .map(move |(index, address)| {
                let address = RuntimeAddress(*address);
                if index == last {
                    CodeAddress::Instruction(address)
                } else {
                    CodeAddress::Return(address)
                }
            })
    }
}

/// Kernel samples of all threads that wait for their user stack: it may be in the next chunk. Those
/// of a thread are known by their cursors, in whatever order they come.
#[derive(Debug, Default)]
pub(super) struct WaitingRoom {
    threads: BTreeMap<ThreadId, BTreeMap<u64, Waiting>>,
    /// Every kernel stack, once.
    stacks: HashSet<Rc<[u64]>>,
}

impl WaitingRoom {
    pub(super) fn enter(&mut self, thread: ThreadId, head: KernelHead, frames: &[u64]) {
        let known = self.stacks.get(frames).cloned();
        let frames = known.unwrap_or_else(|| {
            let fresh: Rc<[u64]> = frames.into();
            self.stacks.insert(Rc::clone(&fresh));
            fresh
        });
        let samples = self.threads.entry(thread).or_default();
        samples.insert(head.cursor, Waiting { head, frames });
    }

    /// Those of an entry: up to the nonce of its user stack.
    pub(super) fn leave(&mut self, thread: ThreadId, nonce: u64) -> Vec<Waiting> {
        let Some(all) = self.threads.get_mut(&thread) else {
            return Vec::new();
        };
        let mut left = Vec::new();
        while let Some(first) = all.first_entry().filter(|first| *first.key() <= nonce) {
            left.push(first.remove());
        }
        left
    }

    /// The same, but for those that are to stay.
    pub(super) fn leave_but(
        &mut self,
        thread: ThreadId,
        nonce: u64,
        stays: impl Fn(&KernelHead) -> bool,
    ) {
        let left = self.leave(thread, nonce).into_iter();
        let stay = left.filter(|sample| stays(&sample.head));
        let stay = stay.map(|sample| (sample.head.cursor, sample));
        if let Some(all) = self.threads.get_mut(&thread) {
            all.extend(stay);
        }
    }

    /// Those whose user stack never came.
    pub(super) fn rest(&mut self) -> Vec<(ThreadId, Waiting)> {
        let rest = std::mem::take(&mut self.threads).into_iter();
        rest.flat_map(|(thread, all)| all.into_values().map(move |sample| (thread, sample)))
            .collect()
    }
}

/// Reads the kernel samples of one chunk.
#[derive(Debug, Default)]
pub(super) struct KernelReader {
    before: KernelHead,
    /// From leaf to root.
    frames: Vec<u64>,
}

impl KernelReader {
    pub(super) fn read(&mut self, payload: &[u8]) -> Result<(KernelHead, &[u64]), WireError> {
        let sample = KernelSample::decode(payload, &self.before)?;
        let kept = self.frames.len().checked_sub(sample.reused);
        let kept = kept.ok_or(WireError::BadValue(
            "reused kernel frames",
            sample.reused as u64,
        ))?;
        let new = sample.new_frames().collect::<Result<Vec<_>, _>>()?;
        self.frames.splice(..kept, new);
        self.before = sample.head;
        Ok((sample.head, &self.frames))
    }

    /// Records before this point are damaged: what leans on them cannot be read.
    pub(super) fn lose(&mut self) {
        self.frames.clear();
        self.before.cookie = 0;
    }
}

/// Whether the kernel was entered, with that `user_ip`, from the instruction at which the user
/// stack was taken.
pub(super) fn is_entry(user_ip: u64, taken_at: u64) -> bool {
    user_ip == taken_at || user_ip == taken_at.wrapping_add(SYSTEM_CALL)
}

/// Whether ip and sp of a kernel sample are those at which the user stack was taken: one entry into
/// the kernel. `probes`: the program's code may have probes.
pub(super) fn agrees(kernel: &KernelHead, user: &SampleHead, user_ip: u64, probes: bool) -> bool {
    kernel.user_sp == user.sp && is_entry(kernel.user_ip, user_ip)
        || probes && is_behind_probe(kernel, user, user_ip)
}

/// Whether the user stack was taken right behind the instruction that a probe of the program's code
/// (uprobe) replaced: the kernel executes that before it comes back, and it may be the push that
/// functions begin with.
fn is_behind_probe(kernel: &KernelHead, user: &SampleHead, user_ip: u64) -> bool {
    let step = user_ip.wrapping_sub(kernel.user_ip);
    let pushed = kernel.user_sp.wrapping_sub(user.sp);
    (1..=LONGEST_INSTRUCTION).contains(&step) && matches!(pushed, 0 | 8)
}

/// Bytes.
const LONGEST_INSTRUCTION: u64 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_decide() {
        let user = SampleHead {
            sp: 0x7ffe_0000,
            ..SampleHead::default()
        };
        let kernel = |user_ip, user_sp| KernelHead {
            user_ip,
            user_sp,
            ..KernelHead::default()
        };
        let agrees = |ip, sp| super::agrees(&kernel(ip, sp), &user, 0x1000, false);
        assert!(agrees(0x1000, 0x7ffe_0000));
        assert!(agrees(0x1002, 0x7ffe_0000), "a restarted call");
        assert!(!agrees(0x1003, 0x7ffe_0000));
        assert!(!agrees(0x1000, 0x7ffd_ff00));
        let behind = |sp, probes| super::agrees(&kernel(0xffc, sp), &user, 0x1000, probes);
        assert!(behind(0x7ffe_0000, true) && behind(0x7ffe_0008, true));
        assert!(!behind(0x7ffe_0010, true) && !behind(0x7ffe_0000, false));
    }

    #[test]
    fn an_entry_takes_its_samples_along_and_leaves_later_ones() {
        let mut room = WaitingRoom::default();
        let thread = ThreadId::new(1);
        for cursor in [30, 10, 20] {
            let head = KernelHead {
                cursor,
                ..KernelHead::default()
            };
            room.enter(thread, head, &[7, 8]);
        }
        assert_eq!(room.leave(thread, 20).len(), 2);
        assert_eq!(room.leave(ThreadId::new(2), 99).len(), 0);
        assert_eq!(room.rest().len(), 1);
    }
}
