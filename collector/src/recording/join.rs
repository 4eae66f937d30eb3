//! Joins the kernel's stacks with the user stack of their entry, and says of each how it was come by ([`KernelHalf`]).
//!
//! Not here: the samples that wait ([`super::kernel`]), and how user stacks are read ([`super::stacks`]).

use super::account::KernelHalf;
use super::kernel::{Waiting, agrees, is_entry, is_near};
use super::model::{RawFrame, RawSample, Recording, StackId, ThreadId};
use super::stacks::{ChunkSamples, Stacks};
use engine::address::CodeAddress;
use engine::wire::kernel::KernelHead;
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::{Method, SampleHead, StopReason, Trigger, flags};
use engine::wire::source::OFF_CPU;
use engine::wire::thread::ThreadEndReason;
use std::collections::HashMap;

impl ChunkSamples<'_> {
    /// Adds a user stack, and on top of it the kernel's stacks of the same entry, one period each.
    pub(super) fn add(&mut self, head: &SampleHead, stack: Option<StackId>) {
        let mut made = RawSample {
            thread: self.thread,
            time_ns: head.time_ns,
            weight: head.weight,
            stack,
            trigger: head.trigger,
            stop: head.stop,
            flags: head.flags,
            kernel: KernelHalf::None,
            entry_ip: 0,
            event: CPU_EVENT,
            value: 0,
            cookie: 0,
        };
        let (leaf, caller) = self.shield(stack);
        let entry = self.stacks.waiting.leave(self.thread, head.nonce);
        if head.flags & flags::FROM_OUTSIDE != 0 {
            let samples = self.recording.samples.iter().rev();
            let own = samples.take_while(|sample| sample.thread == self.thread);
            let own = own.filter(|sample| sample.event != OFF_CPU);
            let last = own.map(|sample| sample.time_ns).max();
            made.weight = count_late(self.recording, self.thread, last, &entry);
        }
        let mut joined = false;
        for kernel in entry {
            let (mut half, user) = match agrees(&kernel.head, head, leaf) {
                true if kernel.head.event == OFF_CPU => self.without_ours(stack, caller),
                true => (KernelHalf::Merged, stack),
                false => self.elsewhere(&kernel.head, head, stack, caller),
            };
            if half == KernelHalf::Merged && std::mem::replace(&mut joined, true) {
                half = KernelHalf::Reused;
            }
            let whole = self.stacks.push_kernel(self.recording, user, &kernel);
            // The weights of an entry add up to its CPU time, which may be a little less than its samples say. Other events have none.
            let is_cpu_time = kernel.head.event == CPU_EVENT;
            let weight = made.weight.min(u64::from(is_cpu_time));
            made.weight -= weight;
            self.recording.samples.push(RawSample {
                time_ns: kernel.head.time_ns,
                weight,
                stack: whole,
                kernel: half,
                entry_ip: kernel.head.user_ip,
                event: kernel.head.event,
                value: kernel.head.value,
                cookie: kernel.head.cookie,
                ..made
            });
        }
        if made.weight > 0 {
            self.recording.samples.push(made);
        }
    }

    /// What a kernel sample is that was not taken where the user stack's leaf is, and its user stack. `caller` is the stack of who called
    /// the wrapper of ours that the user stack was taken in, if it was.
    fn elsewhere(
        &self,
        kernel: &KernelHead,
        user: &SampleHead,
        stack: Option<StackId>,
        caller: Option<StackId>,
    ) -> (KernelHalf, Option<StackId>) {
        if let Some(interrupted) = self.interrupted(stack, kernel.user_ip) {
            return (KernelHalf::Merged, Some(interrupted));
        }
        let process = self.recording.threads[self.thread.index()].process;
        let is_ours = self
            .recording
            .is_ours(process, kernel.user_ip, user.time_ns);
        // Our signal waited for the return from a handler of the program's: the user stack is what that interrupted.
        let late = || match self.stacks.is_way_back(process, kernel.user_ip) {
            true => (KernelHalf::Merged, stack),
            false => (KernelHalf::Late, None),
        };
        match caller {
            _ if is_ours => (KernelHalf::Profiler, None),
            Some(caller) if is_near(kernel, user) => (KernelHalf::Shielded, Some(caller)),
            None if is_near(kernel, user) && kernel.user_sp < user.sp => {
                self.held_back(stack).unwrap_or_else(late)
            }
            _ => late(),
        }
    }

    /// The part of a stack that is the program's, where a thread went off the CPU in code of ours: in a wrapper, whose own stack is `caller`;
    /// in our handler, which interrupted the program; or elsewhere, on a stack of our own.
    fn without_ours(
        &self,
        stack: Option<StackId>,
        caller: Option<StackId>,
    ) -> (KernelHalf, Option<StackId>) {
        let Some(wrapper) = caller else {
            return (KernelHalf::Merged, stack);
        };
        let Some(parent) = self.recording.stacks[wrapper.index()].parent else {
            return (KernelHalf::Profiler, None);
        };
        let frame = self.recording.stacks[parent.index()].frame;
        let RawFrame::Code { method, .. } = self.recording.frames[frame.index()] else {
            return (KernelHalf::Merged, caller);
        };
        let interrupted = method == Method::SignalFrame;
        let user = if interrupted { parent } else { wrapper };
        (KernelHalf::Merged, Some(user))
    }

    /// A sample taken deeper in the stack than where the user stack was taken, which it was not at once: some function held all signals
    /// back meanwhile. libc's do, around clone and vfork. Its caller is on both stacks.
    fn held_back(&self, stack: Option<StackId>) -> Option<(KernelHalf, Option<StackId>)> {
        let holder = self.recording.stacks[stack?.index()];
        let RawFrame::Code {
            module: Some(module),
            ..
        } = self.recording.frames[holder.frame.index()]
        else {
            return None;
        };
        let holder_is_libc = self.recording.modules[module.index()].is_libc();
        holder_is_libc.then_some((KernelHalf::Shielded, holder.parent))
    }

    /// The stack from the frame on that a signal of the program interrupted at that address: on the way back from the kernel its handler
    /// was entered before ours, and our walk began there.
    fn interrupted(&self, stack: Option<StackId>, user_ip: u64) -> Option<StackId> {
        let mut at = stack;
        while let Some(id) = at {
            let node = self.recording.stacks[id.index()];
            if let RawFrame::Code { frame, method, .. } = self.recording.frames[node.frame.index()]
                && method == Method::SignalFrame
                && is_entry(user_ip, frame.lookup().0)
            {
                return Some(id);
            }
            at = node.parent;
        }
        None
    }

    /// The address of the leaf, and if that lies in our own library, the stack from the outermost of its frames there: the wrapper that the
    /// program called.
    fn shield(&self, stack: Option<StackId>) -> (u64, Option<StackId>) {
        let (mut leaf, mut wrapper, mut at) = (None, None, stack);
        while let Some(id) = at {
            let node = self.recording.stacks[id.index()];
            let RawFrame::Code { frame, module, .. } = self.recording.frames[node.frame.index()]
            else {
                break;
            };
            leaf.get_or_insert(match frame {
                CodeAddress::Instruction(address) | CodeAddress::Return(address) => address.0,
            });
            if !module.is_some_and(|module| self.recording.modules[module.index()].is_ours()) {
                break;
            }
            wrapper = Some(id);
            at = node.parent;
        }
        (leaf.unwrap_or(0), wrapper)
    }
}

impl Stacks {
    /// Kernel samples that no user stack came for.
    pub(super) fn finish(mut self, recording: &mut Recording) {
        let mut last: HashMap<ThreadId, u64> = HashMap::new();
        let of_threads = recording.samples.iter().filter(|s| s.event != OFF_CPU);
        for sample in of_threads {
            let last = last.entry(sample.thread).or_default();
            *last = sample.time_ns.max(*last);
        }
        let rest = self.waiting.rest();
        let threads = rest.chunk_by(|(a, _), (b, _)| a == b);
        for of_thread in threads {
            let samples: Vec<_> = of_thread.iter().map(|(_, sample)| sample.clone()).collect();
            if let Some((thread, _)) = of_thread.first() {
                count_late(recording, *thread, last.get(thread).copied(), &samples);
            }
        }
        self.find_interrupted(recording);
        for (thread, sample) in rest {
            let stack = self.push_kernel(recording, None, &sample);
            let half = Self::without_user_stack(recording, thread, &sample.head);
            recording.samples.push(RawSample {
                thread,
                time_ns: sample.head.time_ns,
                weight: u64::from(sample.head.event == CPU_EVENT),
                stack,
                trigger: Trigger::PerfKernel,
                stop: StopReason::Abandoned,
                flags: 0,
                kernel: half,
                entry_ip: sample.head.user_ip,
                event: sample.head.event,
                value: sample.head.value,
                cookie: sample.head.cookie,
            });
        }
        recording.samples.sort_by_key(|sample| sample.thread);
    }

    fn without_user_stack(
        recording: &Recording,
        thread: ThreadId,
        kernel: &KernelHead,
    ) -> KernelHalf {
        let about = &recording.threads[thread.index()];
        if recording.is_ours(about.process, kernel.user_ip, kernel.time_ns) {
            return KernelHalf::Profiler;
        }
        match about.end.map(|end| end.reason) {
            None | Some(ThreadEndReason::Stopped) => KernelHalf::Orphan,
            Some(_) => KernelHalf::Exit,
        }
    }
}

/// Kernel samples that the thread itself took no user stack for: they weigh one period each. CPU time that they show after the thread's
/// clock was looked at for the last time, at its end or its `last` sample, is added to it. Gives how many are of CPU time.
fn count_late(
    recording: &mut Recording,
    thread: ThreadId,
    last: Option<u64>,
    samples: &[Waiting],
) -> u64 {
    let about = &mut recording.threads[thread.index()];
    let looked_at = about.end.map(|end| end.time_ns).or(last).unwrap_or(0);
    let period = about.armings.last().map_or(0, |arming| arming.period_ns);
    let of_cpu_time = samples.iter().filter(|s| s.head.event == CPU_EVENT);
    let late = of_cpu_time.clone().filter(|s| s.head.time_ns > looked_at);
    let late_ns = period.saturating_mul(late.count() as u64);
    about.late_cpu_ns = about.late_cpu_ns.saturating_add(late_ns);
    of_cpu_time.count() as u64
}
