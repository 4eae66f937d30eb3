//! What a thread writes to its chunk of the segment: records, samples and what they lean on, its
//! running totals.
//!
//! # Safety
//! The trigger and the frames of samples are used in the handler, or with the signal held back.
#![allow(unsafe_code)]

use super::labels::hash;
use super::output::Stack;
use super::shared::Shared;
use super::state::ThreadState;
use super::unsampled;
use crate::clock;
use crate::process::PROCESS;
use crate::segment::SEGMENT;
use crate::sys::{self, HeldBack};
use crate::trigger::Armed;
use crate::trigger::ring::Drained;
use core::sync::atomic::Ordering::Relaxed;
#[cfg(doc)]
use engine::last_walk::LastWalk;
use engine::wire::codec::Encoder;
use engine::wire::event::{Event, EventKind};
use engine::wire::kernel::KernelHead;
use engine::wire::record::RecordKind;
use engine::wire::sample::{SampleHead, flags};
use engine::wire::thread::{Thread, ThreadAccount, ThreadEnd, ThreadEndReason, ThreadName};

impl ThreadState {
    /// Writes a record to the thread's chunk, claiming another one if it does not fit. A failure is
    /// silent here: only samples are counted, by their caller. No sample can come between, nor a
    /// handler of the program's that waits for a child: they would be written to the same place.
    pub fn write(&self, kind: RecordKind, encode: impl Fn(&mut Encoder<'_>)) -> bool {
        let _held = HeldBack::all();
        self.in_a_chunk(|| self.output.write(&self.account, kind, &encode))
    }

    /// Writes an event of this process to the thread's chunk.
    pub fn event(&self, kind: EventKind, value: u64, text: &[u8]) {
        let event = Event {
            kind,
            time_ns: clock::monotonic_ns(),
            value,
            text,
        };
        self.write(RecordKind::Event, |out| event.encode(out));
    }

    /// Closes this thread's account, with its name; where it has no chunk in the one that is
    /// nobody's.
    ///
    /// # Signal safety
    /// Raw system calls.
    pub fn close_account_here(&self, reason: ThreadEndReason) {
        if let Some(cpu_ns) = self.cpu_ns() {
            self.close_account_at(cpu_ns, reason, &HeldBack::all());
        }
    }

    /// The same at that CPU time of the thread, with all signals held back.
    pub fn close_account_at(&self, cpu_ns: u64, reason: ThreadEndReason, held: &HeldBack) {
        self.account.settle_lost();
        let end = end_at(&self.shared, cpu_ns, reason);
        if self.was_never_armed() {
            // Nobody knows where it was.
            self.trigger.was_never_armed(end.cpu_ns);
            let unarmed = &self.account.totals.unarmed_cpu_ns;
            unarmed.store(end.cpu_ns, Relaxed);
        }
        if self.output.chunk().is_some() {
            self.record_name();
            self.write(RecordKind::ThreadEnd, |out| end.encode(out));
            return;
        }
        let name = sys::thread_name();
        let account = ThreadAccount {
            end,
            thread: self.as_recorded(&name, end.time_ns),
            arming_ns: self.account.totals.arming_ns.load(Relaxed),
            entry: self.shared.entry.load(Relaxed),
        };
        unsampled::write(&account, held);
    }

    /// Writes another thread's final CPU time, and what else there is to say of it if it has not
    /// said so itself.
    pub fn close_account_of(&self, other: &Shared, reason: ThreadEndReason) {
        let Some(cpu_ns) = other.cpu_ns() else {
            return;
        };
        let end = end_at(other, cpu_ns, reason);
        if other.is_told() {
            self.write(RecordKind::ThreadEnd, |out| end.encode(out));
            return;
        }
        let mut name = [0; 16];
        let name = sys::name_of_thread(end.tid, &mut name);
        let account = ThreadAccount {
            end,
            thread: Thread {
                time_ns: end.thread_key,
                trigger: other.trigger(),
                signal: self.signal() as u32,
                period_ns: PROCESS.period_ns(),
                periods: 1,
                refused: 0,
                unarmed_cpu_ns: if other.is_late() { end.cpu_ns } else { 0 },
                name,
            },
            arming_ns: 0,
            entry: other.entry.load(Relaxed),
        };
        self.write(RecordKind::ThreadAccount, |out| account.encode(out));
    }

    /// At its end, before its last sample: whether it was one of those for which arming is not
    /// worth while.
    pub fn count_end(&self, cpu_ns: u64) {
        let own_ns = cpu_ns.saturating_sub(self.account.totals.arming_ns.load(Relaxed));
        unsampled::ended(own_ns < PROCESS.asked_ns());
        let used_ns = self.budget.used_since(cpu_ns);
        let switches = match self.shared.is_late() {
            true => 0,
            false => self.switches_with_event(clock::monotonic_ns()),
        };
        let due_ns = self.budget.take_due();
        let due_ns = due_ns.saturating_add(PROCESS.pace.switches_ns(used_ns, switches));
        PROCESS.pace.ended(used_ns, due_ns);
    }

    /// CPU time between its arming and its last sample, ns.
    pub fn used_ns(&self) -> u64 {
        self.account.used_ns()
    }

    /// Records the thread's name with how it is sampled, if it is not the one recorded before:
    /// programs name threads that run already.
    ///
    /// # Signal safety
    /// Raw system calls.
    pub fn record_name(&self) {
        let name = sys::thread_name();
        if !self.account.is_renamed(name) {
            return;
        }
        let thread = self.as_recorded(&name, clock::monotonic_ns());
        if self.write(RecordKind::Thread, |out| thread.encode(out)) {
            self.shared.tell();
        }
    }

    /// Whether the program is to be asked what it calls this thread, now that it can be. Its first
    /// thread has the kernel's name: what interpreters begin there is no thread.
    ///
    /// # Signal safety
    /// A system call at most.
    pub(crate) fn is_own_name_due(&self) -> bool {
        self.account.is_own_name_due() && self.tid() != sys::getpid()
    }

    /// Records what the program calls the thread, if it is another name than the one before.
    ///
    /// # Signal safety
    /// As writing a record.
    pub(crate) fn record_own_name(&self, name: &[u8]) {
        if self.account.has_another_own_name(hash(1, name)) {
            let time_ns = clock::monotonic_ns();
            let name = ThreadName { time_ns, name };
            self.write(RecordKind::ThreadName, |out| name.encode(out));
        }
    }

    fn as_recorded<'n>(&self, name: &'n [u8; 16], time_ns: u64) -> Thread<'n> {
        let arming = self.trigger.arming();
        Thread {
            time_ns,
            trigger: self.shared.trigger(),
            signal: self.signal() as u32,
            period_ns: arming.period_ns,
            periods: self.trigger.periods(),
            refused: arming.refused.0 as u32,
            unarmed_cpu_ns: arming.unarmed_cpu_ns,
            name: name.split(|byte| *byte == 0).next().unwrap_or(&[]),
        }
    }

    /// Writes a sample of the first `count` frames of its room, and counts it. `unchanged`: see
    /// [`LastWalk::unchanged`]. For the handler, or with the signal held back.
    pub fn write_sample(&self, head: SampleHead, count: usize, unchanged: (u64, usize)) {
        let written = self.in_a_chunk(|| {
            let count_before = self.output.frames_before();
            // SAFETY: the walk that has filled the room is over.
            let (frames, before) = unsafe { self.room.frames(count, count_before) };
            let stack = Stack {
                frames,
                before,
                unchanged,
            };
            self.output.sample(&self.account, &head, &stack)
        });
        let written = written || {
            // SAFETY: as above.
            let (frames, _) = unsafe { self.room.frames(count, 0) };
            self.output.cut_sample(&self.account, &head, frames)
        };
        self.account.count_sample(head.weight, written);
        if written {
            self.room.swap();
        } else if let (None, Some(header)) = (self.output.chunk(), SEGMENT.header()) {
            header.chunkless_samples.fetch_add(1, Relaxed);
            header.chunkless_weight.fetch_add(head.weight, Relaxed);
        }
    }

    /// Takes everything out of the thread's perf ring and writes the kernel's half of the samples,
    /// unless the collector does. For the handler, or with the signal held back.
    pub fn drain_perf(&self) -> Drained {
        // SAFETY: this is called so, and nothing below replaces the trigger.
        let drained = match unsafe { self.trigger.armed() } {
            Armed::Perf(event) => {
                event.drain(|head, frames| self.write_kernel_sample(head, frames))
            }
            _ => Drained::default(),
        };
        self.trigger.pass(drained.cursor);
        self.account.count_lost(drained.lost);
        drained
    }

    /// A sample of that weight stands for what [`ThreadState::drain_perf`] has just found.
    pub fn count_missing(&self, drained: &Drained, weight: u64) {
        if drained.was_full {
            let due = weight.checked_div(self.trigger.periods()).unwrap_or(0);
            let found = drained.samples.saturating_add(drained.lost);
            self.account.lack(due.saturating_sub(found));
        }
    }

    pub(super) fn write_kernel_sample(&self, head: &KernelHead, frames: &[u64]) {
        self.in_a_chunk(|| self.output.kernel_sample(&self.account, head, frames));
    }

    /// Writes to the thread's chunk, or if it does not fit to another one.
    fn in_a_chunk(&self, write: impl Fn() -> bool) -> bool {
        write() || (self.next_chunk() && write())
    }

    fn next_chunk(&self) -> bool {
        self.output.seal();
        let chunk = SEGMENT.claim(self.tid(), self.key()).ok();
        self.output.begin(chunk);
        self.publish_totals();
        chunk.is_some()
    }

    /// Hands the thread's chunk over: nothing more will be written.
    pub fn seal_chunk(&self) {
        self.output.seal();
    }

    /// What of that time, which ends now and began at that CPU time of the thread, was its own, ns:
    /// from `doubted_ns` on others may have had the processor meanwhile. `None` if nobody can tell.
    ///
    /// # Signal safety
    /// One system call at most.
    pub fn own_part(&self, passed_ns: u64, doubted_ns: u64, began_cpu_ns: u64) -> Option<u64> {
        if passed_ns < doubted_ns {
            return Some(passed_ns);
        }
        let own_ns = self.cpu_ns()?.saturating_sub(began_cpu_ns);
        Some(own_ns.min(passed_ns))
    }

    /// CPU time of the thread at its last sample, ns.
    pub fn sampled_at_ns(&self) -> u64 {
        self.account.totals.cpu_ns.load(Relaxed)
    }

    /// Adds to the time spent in the handler, and in the kernel on the way to it, ns.
    pub fn count_handler_time(&self, handler_ns: u64, delivery_ns: u64) {
        let totals = &self.account.totals;
        totals.handler_ns.fetch_add(handler_ns, Relaxed);
        totals.delivery_ns.fetch_add(delivery_ns, Relaxed);
        self.publish_totals();
    }

    fn publish_totals(&self) {
        if let Some(chunk) = self.output.chunk() {
            self.account.publish(&chunk.header().totals);
        }
    }

    /// Whether it waited for a first signal only, which did not come.
    pub fn was_never_armed(&self) -> bool {
        self.shared.is_late() && self.has_no_samples()
    }

    /// Whether no sample was written yet.
    pub fn has_no_samples(&self) -> bool {
        self.account.totals.samples.load(Relaxed) == 0
    }

    /// Its CPU time, ns.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.shared.cpu_ns()
    }

    /// Counts all CPU time of the thread, from its beginning, as not yet given. With the signal
    /// held back.
    pub fn weigh_from_birth(&self) {
        self.account.count_from(0);
    }

    /// Weight of a sample now; `counted` where the thread's clock cannot be read. `is_next`: of its
    /// trigger there was just one since the sample before. For the handler, or with the signal held
    /// back.
    ///
    /// # Signal safety
    /// One system call at most.
    pub fn take_weight(&self, counted: u64, is_next: bool) -> u64 {
        let period_ns = PROCESS.period_ns();
        let apart_ns = period_ns.saturating_mul(self.trigger.periods());
        let read = || self.cpu_ns();
        match self.account.cpu_ns_at_sample(apart_ns, is_next, read) {
            Some(cpu_ns) => self.account.take(cpu_ns, period_ns),
            None => counted,
        }
    }

    /// The flag that says that walks have been left out since the last sample, if that is so. For
    /// the handler, or with the signal held back.
    ///
    /// # Signal safety
    /// A load and a store.
    pub fn left_out(&self) -> u64 {
        match self.budget.take_left_out() {
            true => flags::WALKS_LEFT_OUT,
            false => 0,
        }
    }

    /// Weight of a sample that its timer tells. For the handler.
    ///
    /// # Signal safety
    /// Arithmetic only.
    pub fn told_weight(&self, weight: u64) -> u64 {
        self.account.give(weight);
        weight
    }
}

/// The end of a thread at that CPU time.
fn end_at(thread: &Shared, cpu_ns: u64, reason: ThreadEndReason) -> ThreadEnd {
    ThreadEnd {
        tid: thread.tid.load(Relaxed),
        thread_key: thread.key.load(Relaxed),
        cpu_ns,
        time_ns: clock::monotonic_ns(),
        reason,
    }
}
