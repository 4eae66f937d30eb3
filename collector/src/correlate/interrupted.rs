//! Threads that went off the CPU while our handler ran, on a stack of its own: a tick that makes a
//! sample is often one that makes the thread give way, too. The program's stack is the one that
//! this run of the handler took, just before or, when it was back, just after.
//!
//! Not here: other kernel samples, which are joined by their registers ([`super::join`]).

use super::samples::{Made, Stacks};
use crate::intern::HashMap;
use crate::recording::{KernelHalf, RawFrame, RawSample, StackId, StackNode, ThreadId};
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::StopReason;
use engine::wire::source::OFF_CPU;
use std::collections::BTreeMap;

/// Within this time of when its stack was taken the handler begins and ends, unless it is kept off
/// the CPU, ns.
const HANDLER_NS: u64 = 500_000;

/// The stacks that handlers took, by thread and time.
#[derive(Debug, Default)]
struct Runs(HashMap<ThreadId, BTreeMap<u64, (Option<StackId>, StopReason)>>);

impl Runs {
    fn of(samples: &[RawSample]) -> Self {
        let mut runs = Self::default();
        let own = |sample: &&RawSample| sample.event == CPU_EVENT && !sample.kernel.is_alone();
        for sample in samples.iter().filter(own) {
            let of_thread = runs.0.entry(sample.thread).or_default();
            of_thread.insert(sample.time_ns, (sample.stack, sample.stop));
        }
        runs
    }

    /// That of the run during which a thread was away from one time to another.
    fn around(&self, absence: &RawSample) -> Option<(Option<StackId>, StopReason)> {
        let runs = self.0.get(&absence.thread)?;
        let (away_ns, back_ns) = (
            absence.time_ns,
            absence.time_ns.saturating_add(absence.value),
        );
        let before = runs.range(..=away_ns).next_back();
        let before = before.map(|(taken_ns, run)| (away_ns - taken_ns, *run));
        let after = runs.range(back_ns..).next();
        let after = after.map(|(taken_ns, run)| (taken_ns - back_ns, *run));
        let nearest = before.into_iter().chain(after).min_by_key(|(ns, _)| *ns);
        nearest
            .filter(|(ns, _)| *ns < HANDLER_NS)
            .map(|(_, run)| run)
    }
}

impl Stacks {
    /// Puts the kernel's stacks of such absences on those of the program.
    pub(super) fn find_interrupted(&mut self) {
        let in_handler =
            |sample: &RawSample| (sample.event, sample.kernel) == (OFF_CPU, KernelHalf::Profiler);
        if !self.made.samples.iter().any(in_handler) {
            return;
        }
        let runs = Runs::of(&self.made.samples);
        for index in 0..self.made.samples.len() {
            let absence = self.made.samples[index];
            if let (true, Some((run, stop))) = (in_handler(&absence), runs.around(&absence)) {
                let Made { frames, stacks, .. } = &self.made;
                let (_, user) = parted(frames, stacks, run);
                let (kernel, _) = parted(frames, stacks, absence.stack);
                let frames = kernel.into_iter().rev();
                let stack = frames.fold(user, |node, frame| self.push(node, frame));
                self.made.samples[index] = RawSample {
                    stack,
                    stop,
                    kernel: KernelHalf::Merged,
                    ..absence
                };
            }
        }
    }
}

/// The kernel's frames of a stack, from the leaf, and the user's stack.
fn parted(
    frames: &[RawFrame],
    stacks: &[StackNode],
    stack: Option<StackId>,
) -> (Vec<RawFrame>, Option<StackId>) {
    let (mut kernel, mut at) = (Vec::new(), stack);
    while let Some(id) = at {
        let node = stacks[id.index()];
        let frame = frames[node.frame.index()];
        if !matches!(frame, RawFrame::Kernel(_)) {
            break;
        }
        kernel.push(frame);
        at = node.parent;
    }
    (kernel, at)
}

#[cfg(test)]
mod tests {
    use super::super::read_bytes;
    use super::*;
    use crate::recording::example::{Chunk, absences, head, recording};
    use crate::recording::{RawSample, Recording};
    use engine::wire::module::Module;
    use engine::wire::record::RecordKind;

    /// What an absence of 2 ms in our own code is taken for, with samples of the thread at those
    /// times.
    fn read(taken_ns: &[u64]) -> (Recording, RawSample) {
        let library = Module {
            time_ns: 1,
            start: 0x1000,
            end: 0x2000,
            bias: 0x1000,
            build_id: &[7],
            path: b"/ours",
            ours: true,
        };
        let own = Chunk::new(42, 42, 0).record(RecordKind::Module, |out| library.encode(out));
        let own = taken_ns
            .iter()
            .fold(own, |chunk, ns| chunk.sample(head(*ns, 1), &[*ns, 0x30]));
        // Both frames of the absence are ours: 0x1010, and its caller.
        let mut seen = absences((42, 41_000), (42, 41_000), 0, &[(9_000_000, 2_000_000)]);
        let ours = Module {
            start: 0,
            end: 0x1000,
            bias: 0,
            ..library
        };
        seen = seen.record(RecordKind::Module, |out| ours.encode(out));
        let found = read_bytes("x.rsu", recording(&[own, seen])).unwrap();
        let absence = found.samples.iter().find(|s| s.event == OFF_CPU);
        let absence = *absence.unwrap();
        (found, absence)
    }

    fn leaf_of_user(found: &Recording, absence: &RawSample) -> Option<u64> {
        let (kernel, user) = parted(&found.frames, &found.stacks, absence.stack);
        assert_eq!(kernel.len(), 1);
        let node = found.stacks[user?.index()];
        match found.frames[node.frame.index()] {
            RawFrame::Code { frame, .. } => Some(frame.lookup().0),
            _ => None,
        }
    }

    #[test]
    fn the_run_of_the_handler_around_an_absence_has_the_stack() {
        // Away from 9 ms to 11 ms.
        for (taken_ns, nearest) in [
            (&[8_990_000, 12_100_000][..], 8_990_000),
            (&[8_100_000, 11_003_000], 11_003_000),
            (&[8_900_000, 11_003_000], 11_003_000),
        ] {
            let (found, absence) = read(taken_ns);
            assert_eq!(absence.kernel, KernelHalf::Merged);
            assert_eq!(leaf_of_user(&found, &absence), Some(nearest));
        }
    }

    #[test]
    fn without_one_close_by_it_is_the_profilers_own() {
        let (found, absence) = read(&[8_000_000, 12_000_000]);
        assert_eq!(absence.kernel, KernelHalf::Profiler);
        assert_eq!(leaf_of_user(&found, &absence), None);
    }
}
