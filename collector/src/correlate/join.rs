//! Joins the kernel's stacks with the user stack of their entry, and says of each how it was come
//! by ([`KernelHalf`]).
//!
//! Not here: the samples that wait ([`super::kernel_samples`]), and how user stacks are read
//! ([`super::samples`]).

use super::held::User;
use super::kernel_samples::{Waiting, is_entry};
use super::samples::{ChunkSamples, Made, Stacks, name_of};
use super::window::Sent;
use crate::intern::{HashMap, HashSet};
use crate::recording::{
    KernelHalf, LabelsId, ProcessId, RawFrame, RawSample, Recording, StackId, ThreadId, settle,
};
use engine::wire::kernel::KernelHead;
use engine::wire::offer::CPU_EVENT;
use engine::wire::sample::{Method, SampleHead, StopReason, Trigger, flags};
use engine::wire::source::OFF_CPU;
use engine::wire::thread::ThreadEndReason;

/// What a sample stands for at most if its signal was not held back, ns: the slowest tick by which
/// CPU timers are looked at.
const LONGEST_TICK_NS: u64 = 10_000_000;

impl ChunkSamples<'_, '_> {
    /// Adds a user stack, and on top of it the kernel's stacks of the same entry, with the periods
    /// that each stands for.
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
            // Where the time went elsewhere, what is known from before and behind holds.
            labels: match head.flags & (flags::FROM_OUTSIDE | flags::LAST | flags::LET_IN) {
                0 => self.labels(head),
                _ => LabelsId::UNKNOWN,
            },
        };
        let entry = self.stacks.waiting.leave(self.thread, head.nonce);
        let user = User::of(
            self.recording,
            &self.stacks.made,
            *head,
            stack,
            newest_entry(entry.iter()),
        );
        let is_from_outside = head.flags & flags::FROM_OUTSIDE != 0;
        let stays_since = if is_from_outside {
            stays_since(&entry)
        } else {
            0
        };
        if is_from_outside {
            let samples = self.stacks.made.samples.iter().rev();
            let own = samples.take_while(|sample| sample.thread == self.thread);
            let own = own.filter(|sample| sample.event != OFF_CPU);
            let last = own.map(|sample| sample.time_ns).max();
            let window = self.stacks.window;
            let new = entry
                .iter()
                .filter(|one| !window.had_late(one.head.time_ns));
            let new: Vec<_> = new.cloned().collect();
            made.weight = self
                .stacks
                .count_late(self.recording, self.thread, last, &new);
        }
        let name = name_of(self.recording, self.thread);
        if let Some(sent) = self.stacks.sent.remove(&name).filter(|_| !is_from_outside) {
            // Clocks may say a little less than samples do; then the next user stack has the rest.
            if let Some(rest) = sent.checked_sub(made.weight).filter(|rest| *rest > 0) {
                self.stacks.sent.insert(name, rest);
            }
            made.weight = made.weight.saturating_sub(sent);
        }
        let is_asked = is_from_outside || !entry.iter().all(|sample| user.agrees(&sample.head));
        let by_libc = is_asked && self.is_held_by_libc(&user, &entry);
        let mut joined = false;
        for kernel in entry {
            if self.stacks.window.had_late(kernel.head.time_ns) {
                continue;
            }
            let is_of_call = kernel.head.cursor >= stays_since
                && !(is_from_outside && kernel.is_of_user_mode())
                || kernel.head.event == OFF_CPU;
            let (mut half, below) = match is_of_call && user.agrees(&kernel.head) {
                true if kernel.head.event == OFF_CPU => self.without_ours(stack, user.caller),
                true => (KernelHalf::Merged, stack),
                false => self.elsewhere(&kernel.head, &user, by_libc),
            };
            let mut sample = RawSample {
                time_ns: kernel.head.time_ns,
                entry_ip: kernel.head.user_ip,
                event: kernel.head.event,
                value: kernel.head.value,
                cookie: kernel.head.cookie,
                // Where this one was taken the time went.
                flags: made.flags & !(flags::LET_IN | flags::LAST | flags::WALKS_LEFT_OUT),
                ..made
            };
            let is_of_entry = half == KernelHalf::Merged && kernel.head.event != OFF_CPU;
            sample.labels = match is_of_entry && !is_from_outside {
                true => self.labels(head),
                false => LabelsId::UNKNOWN,
            };
            if half.is_alone() {
                (sample.flags, sample.stop) = (0, StopReason::Abandoned);
            }
            if half == KernelHalf::Late {
                sample.stop = match head.flags & flags::WALKS_LEFT_OUT {
                    0 => StopReason::Blocked,
                    _ => StopReason::LeftOut,
                };
            }
            sample.stack = match (kernel.is_of_user_mode(), half) {
                (false, _) => self.stacks.push_kernel(below, &kernel),
                // The thread has gone on since: from code of ours too, where the stack stands for
                // its call alone.
                (true, _) if half == KernelHalf::Late || half.is_alone() && is_from_outside => {
                    half = KernelHalf::None;
                    self.stacks.push_leaf(self.recording, self.thread, &kernel)
                }
                // The user stack is this sample's.
                (true, _) => continue,
            };
            if half == KernelHalf::Merged && std::mem::replace(&mut joined, true) {
                half = KernelHalf::Reused;
            }
            sample.kernel = half;
            // The weights of an entry add up to its CPU time, which may be a little less than its
            // samples say. Other events have none.
            sample.weight = made.weight.min(kernel.head.weight());
            made.weight -= sample.weight;
            self.stacks.made.samples.push(sample);
        }
        if made.weight.saturating_mul(self.period_ns()) <= LONGEST_TICK_NS {
            made.flags &= !flags::LET_IN;
        }
        if made.weight > 0 {
            self.stacks.made.samples.push(made);
        }
    }

    pub(super) fn period_ns(&self) -> u64 {
        let armings = &self.recording.threads[self.thread.index()].armings;
        armings.last().map_or(0, |arming| arming.period_ns)
    }

    /// What a kernel sample is that was not taken where the user stack's leaf is, and its user
    /// stack. `by_libc`: nothing but a function of libc held our signal back.
    fn elsewhere(
        &self,
        kernel: &KernelHead,
        user: &User,
        by_libc: bool,
    ) -> (KernelHalf, Option<StackId>) {
        if let Some(interrupted) = self.interrupted(user, kernel) {
            return (KernelHalf::Merged, Some(interrupted));
        }
        let process = self.recording.threads[self.thread.index()].process;
        let time_ns = user.head.time_ns;
        if self.recording.is_ours(process, kernel.user_ip, time_ns) {
            return (KernelHalf::Profiler, None);
        }
        if by_libc && user.is_deeper_in_libc(self.recording, process, kernel) {
            let holder = user.stack.map(|id| self.stacks.made.stacks[id.index()]);
            return (
                KernelHalf::Shielded,
                holder.and_then(|holder| holder.parent),
            );
        }
        match self.is_way_back(process, user, kernel) {
            true => (KernelHalf::Merged, user.stack),
            false => (KernelHalf::Late, None),
        }
    }

    /// Whether our signal waited for the return from a handler of the program's: the user stack is
    /// what that interrupted.
    fn is_way_back(&self, process: ProcessId, user: &User, kernel: &KernelHead) -> bool {
        kernel.cursor >= user.newest && self.stacks.is_way_back(process, kernel.user_ip)
    }

    /// Whether it can only have been a function of libc that held our signal back up to this user
    /// stack: it was taken there, and so was all that was sampled since the stack before. libc's
    /// functions around clone and vfork hold all signals back.
    fn is_held_by_libc(&self, user: &User, entry: &[Waiting]) -> bool {
        let process = self.recording.threads[self.thread.index()].process;
        let time_ns = user.head.time_ns;
        let mut heads = entry.iter().map(|sample| &sample.head);
        user.is_in_libc(self.recording)
            && heads.all(|head| {
                user.agrees(head)
                    || user.is_deeper_in_libc(self.recording, process, head)
                    || self.recording.is_ours(process, head.user_ip, time_ns)
                    || self.interrupted(user, head).is_some()
                    || self.is_way_back(process, user, head)
            })
    }

    /// The part of a stack that is the program's, where a thread went off the CPU in code of ours:
    /// in a wrapper, whose own stack is `caller`; in our handler, which interrupted the program; or
    /// elsewhere, on a stack of our own.
    fn without_ours(
        &self,
        stack: Option<StackId>,
        caller: Option<StackId>,
    ) -> (KernelHalf, Option<StackId>) {
        let Some(wrapper) = caller else {
            return (KernelHalf::Merged, stack);
        };
        let Some(parent) = self.stacks.made.stacks[wrapper.index()].parent else {
            return (KernelHalf::Profiler, None);
        };
        let frame = self.stacks.made.stacks[parent.index()].frame;
        let RawFrame::Code { method, .. } = self.stacks.made.frames[frame.index()] else {
            return (KernelHalf::Merged, caller);
        };
        let interrupted = method == Method::SignalFrame;
        let user = if interrupted { parent } else { wrapper };
        (KernelHalf::Merged, Some(user))
    }

    /// The stack from the frame on that a signal of the program interrupted where the sample was
    /// taken: on the way back from the kernel its handler was entered before ours, and our walk
    /// began there. No sample was taken elsewhere in between.
    fn interrupted(&self, user: &User, kernel: &KernelHead) -> Option<StackId> {
        let mut at = user.stack.filter(|_| kernel.cursor >= user.newest);
        while let Some(id) = at {
            let node = self.stacks.made.stacks[id.index()];
            if let RawFrame::Code { frame, method, .. } =
                self.stacks.made.frames[node.frame.index()]
                && method == Method::SignalFrame
                && is_entry(kernel.user_ip, frame.lookup().0)
            {
                return Some(id);
            }
            at = node.parent;
        }
        None
    }
}

impl Stacks {
    /// Kernel samples that no user stack came for; gives what the next window has to know of those
    /// of threads that are still there.
    pub(super) fn finish(mut self, recording: &Recording) -> (Made, Sent) {
        let mut last: HashMap<ThreadId, u64> = HashMap::default();
        let mut newest: HashMap<ThreadId, u64> = HashMap::default();
        let of_threads = self.made.samples.iter().filter(|s| s.event != OFF_CPU);
        for sample in of_threads {
            let last = last.entry(sample.thread).or_default();
            *last = sample.time_ns.max(*last);
        }
        let mut rest = self.waiting.rest();
        rest.retain(|(thread, sample)| !is_behind_session(recording, *thread, sample));
        let threads = rest.chunk_by(|(a, _), (b, _)| a == b);
        for of_thread in threads {
            let samples: Vec<_> = of_thread.iter().map(|(_, sample)| sample.clone()).collect();
            if let Some((thread, _)) = of_thread.first() {
                self.count_late(recording, *thread, last.get(thread).copied(), &samples);
                let of_cpu_time = samples.iter().filter(|s| s.head.event == CPU_EVENT);
                newest.insert(*thread, newest_entry(of_cpu_time));
            }
        }
        self.find_interrupted();
        let window = self.window;
        let rest = rest.into_iter();
        let wanted = rest.filter(|(_, sample)| window.has_late(sample.head.time_ns));
        for (thread, sample) in wanted {
            let went_on = newest
                .get(&thread)
                .is_some_and(|at| sample.head.cursor < *at);
            let why = without_user_stack(recording, thread, &sample.head, went_on);
            let stop = match why {
                KernelHalf::Late => StopReason::Blocked,
                _ => StopReason::Abandoned,
            };
            let process = recording.threads[thread.index()].process;
            let (half, stack) = if sample.is_of_user_mode() {
                let leaf = self.push_leaf(recording, thread, &sample);
                (KernelHalf::None, leaf)
            } else {
                let is_ours = recording.is_ours(process, sample.head.user_ip, sample.head.time_ns);
                let half = if is_ours { KernelHalf::Profiler } else { why };
                (half, self.push_kernel(None, &sample))
            };
            let weight = sample.head.weight();
            let sent = self.sent.entry(name_of(recording, thread));
            *sent.or_default() += weight;
            self.made.samples.push(RawSample {
                thread,
                time_ns: sample.head.time_ns,
                weight,
                stack,
                trigger: Trigger::PerfKernel,
                stop,
                flags: 0,
                kernel: half,
                entry_ip: sample.head.user_ip,
                event: sample.head.event,
                value: sample.head.value,
                cookie: sample.head.cookie,
                labels: LabelsId::UNKNOWN,
            });
        }
        settle(std::mem::take(&mut self.regions), &mut self.made.samples);
        let threads = (0..recording.threads.len()).map(ThreadId::next_of);
        let there: HashSet<_> = threads.map(|id| name_of(recording, id)).collect();
        self.sent
            .retain(|name, sent| *sent > 0 && there.contains(name));
        let beside = self.beside.left().into_iter();
        let sent = Sent {
            late: self.sent,
            beside: beside
                .map(|(id, weight)| (name_of(recording, id), weight))
                .collect(),
        };
        (self.made, sent)
    }

    /// Kernel samples that the thread itself took no user stack for: each has its own weight. CPU
    /// time that they show after the thread's clock was looked at for the last time, at its end or
    /// its `last` sample, is added to it. Gives what they weigh.
    fn count_late(
        &mut self,
        recording: &Recording,
        thread: ThreadId,
        last: Option<u64>,
        samples: &[Waiting],
    ) -> u64 {
        let about = &recording.threads[thread.index()];
        let looked_at = about.end.map(|end| end.time_ns).or(last).unwrap_or(0);
        let period = about.armings.last().map_or(0, |arming| arming.period_ns);
        let late = samples.iter().filter(|s| s.head.time_ns > looked_at);
        let weight = |sample: &Waiting| sample.head.weight();
        let late_ns = period.saturating_mul(late.map(weight).sum());
        self.made.late_cpu_ns.push((thread, late_ns));
        samples.iter().map(weight).sum()
    }
}

/// Whether the thread had taken its last sample and ran on. What it does is not recorded any more,
/// though the collector held its event a little longer.
fn is_behind_session(recording: &Recording, thread: ThreadId, sample: &Waiting) -> bool {
    let end = recording.threads[thread.index()].end;
    let stopped = end.filter(|end| end.reason == ThreadEndReason::Stopped);
    stopped.is_some_and(|end| sample.is_of_user_mode() && sample.head.time_ns > end.time_ns)
}

/// Why no user stack came for a sample. `went_on`: the thread entered the kernel anew after it, or
/// left it, so it could have taken one.
fn without_user_stack(
    recording: &Recording,
    thread: ThreadId,
    kernel: &KernelHead,
    went_on: bool,
) -> KernelHalf {
    match recording.threads[thread.index()].end {
        None if went_on => KernelHalf::Late,
        None => KernelHalf::Orphan,
        // Behind its end there may be samples of events that the collector still held.
        Some(end) if end.reason == ThreadEndReason::Stopped => {
            match went_on && kernel.time_ns <= end.time_ns {
                true => KernelHalf::Late,
                false => KernelHalf::Orphan,
            }
        }
        Some(_) => KernelHalf::Exit,
    }
}

/// From which cursor on all of a thread's samples, which are in their order, were taken at the same
/// place: it may be there still.
fn newest_entry<'a>(samples: impl DoubleEndedIterator<Item = &'a Waiting>) -> u64 {
    let mut backwards = samples.rev().map(|sample| &sample.head);
    let Some(newest) = backwards.next() else {
        return 0;
    };
    let place = |head: &KernelHead| (head.user_ip, head.user_sp);
    let same = backwards.take_while(|head| place(head) == place(newest));
    same.last().unwrap_or(newest).cursor
}

/// From which cursor on the samples of an entry are of the call in which the thread was seen from
/// outside, where its last sample was taken. It may have had our signal blocked, and made the same
/// call again and again. Then it was elsewhere in between, as its samples tell, and of those that
/// are next to each other no more are of one call than there were before: what is known is of the
/// two between which its stack was read.
fn stays_since(entry: &[Waiting]) -> u64 {
    let of_cpu_time = entry.iter().filter(|s| s.head.event == CPU_EVENT);
    let samples: Vec<&Waiting> = of_cpu_time.collect();
    // Back in user mode it may stand right behind the call.
    let place = |sample: &Waiting| {
        let head = sample.head;
        (!sample.is_of_user_mode()).then_some((head.user_ip, head.user_sp))
    };
    let Some(last) = samples.last().and_then(|sample| place(sample)) else {
        return u64::MAX;
    };
    let runs = samples.chunk_by(|one, other| place(one) == place(other));
    let at_place = runs.filter(|run| run.iter().all(|sample| place(sample) == Some(last)));
    let (before, now) = at_place.fold((0, &[][..]), |(before, now): (usize, &[_]), run| {
        (now.len().max(before), run)
    });
    let known = match now.len() > 2 * before {
        true => now,
        false => &now[now.len().saturating_sub(2)..],
    };
    known.first().map_or(u64::MAX, |sample| sample.head.cursor)
}
