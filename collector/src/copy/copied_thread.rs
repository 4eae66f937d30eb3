//! One sampled thread: its samples on their way into chunks, with the weight that its CPU time
//! gives them.
//!
//! The kernel's samples are not counted for the weight (see `librsunwind/src/cpu_meter.rs`):
//! samples wait until the thread's CPU clock is read, and share what it has gone on by. The clock
//! of a thread that has ended cannot be read: samples since it was read last weigh one period each,
//! and behind the last one it has run for half a period more, on average.

use crate::recording::records::{Chunk, Records};
use engine::wire::chunk::ChunkInfo;
use engine::wire::codec::Encoder;
use engine::wire::kernel::KernelHead;
use engine::wire::offer::CPU_EVENT;
use engine::wire::record::RecordKind;
use engine::wire::sample::{Frame, SampleHead};

/// So many samples of a thread share what its CPU clock has gone on by: the clock is late by a tick
/// of the kernel's.
const ENOUGH: usize = 200;

/// A sample that waits for its weight.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The weight is not in it yet.
    pub(super) head: SampleHead,
    /// From leaf to root.
    pub(super) frames: Vec<Frame>,
    /// Likewise, of the kernel; empty for a sample of user mode.
    pub(super) kernel: Vec<u64>,
    /// Whether the thread's own samples stand for it: it takes its share of the CPU time, and is
    /// not recorded.
    pub(super) is_own: bool,
}

/// A thread of a program run.
#[derive(Debug)]
pub(super) struct Thread {
    /// Header of its next chunk.
    info: ChunkInfo,
    period_ns: u64,
    /// What its clock showed where its CPU time begins to count, ns.
    base_ns: u64,
    /// CPU time up to which weights are given, and where that began, ns.
    start_ns: u64,
    /// When its clock was read last (`CLOCK_MONOTONIC`, ns).
    read_ns: u64,
    /// When its newest sample was, and the newest before its clock was read.
    newest_ns: u64,
    sampled_ns: u64,
    waiting: Vec<Waiting>,
    records: Records,
    /// Closed chunks; their sequence numbers are given when they go.
    done: Vec<Chunk>,
    /// Whether anything was recorded.
    used: bool,
    /// Samples taken: the newest one's nonce.
    taken: u64,
}

impl Thread {
    /// A thread of the process in `info`, with that much CPU time behind it, ns.
    pub(super) fn new(info: ChunkInfo, period_ns: u64, start_ns: u64) -> Self {
        Self {
            info: ChunkInfo {
                cpu_ns: start_ns,
                unarmed_cpu_ns: start_ns,
                ..info
            },
            period_ns,
            base_ns: 0,
            start_ns,
            read_ns: 0,
            newest_ns: 0,
            sampled_ns: 0,
            waiting: Vec::new(),
            records: Records::default(),
            done: Vec::new(),
            used: false,
            taken: 0,
        }
    }

    /// When it was first seen, ns.
    pub(super) const fn key(&self) -> u64 {
        self.info.thread_key
    }

    /// The number by which it is recorded.
    pub(super) const fn number(&self) -> u32 {
        self.info.tid
    }

    /// CPU time of it that is known of, ns.
    pub(super) fn cpu_ns(&self) -> u64 {
        let delivered = self.period_ns.saturating_mul(self.info.weight);
        let weighed = self.start_ns.saturating_add(delivered);
        let unread = self.period_ns.saturating_mul(self.unread());
        self.info.cpu_ns.max(weighed).saturating_add(unread)
    }

    /// Its CPU time counts from where its clock shows that much, ns.
    pub(super) const fn count_from(&mut self, base_ns: u64) {
        self.base_ns = base_ns;
    }

    /// Where that is, ns.
    pub(super) const fn base_ns(&self) -> u64 {
        self.base_ns
    }

    /// Whether anything was recorded of it.
    pub(super) const fn is_used(&self) -> bool {
        self.used
    }

    /// CPU time before it was sampled, ns.
    pub(super) const fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// A sample of it is of before its account begins.
    pub(super) fn leave_out(&mut self) {
        self.base_ns = self.base_ns.saturating_add(self.period_ns);
    }

    /// A sample of it was passed over.
    pub(super) fn pass_over(&mut self) {
        self.start_ns = self.start_ns.saturating_add(self.period_ns);
    }

    /// All that it used up to here was passed over: not every tick of the kernel's clock makes a
    /// sample.
    pub(super) const fn pass_to(&mut self, cpu_ns: u64) {
        self.start_ns = cpu_ns;
    }

    /// Drops everything of it but its CPU time.
    pub(super) fn forget(&mut self) {
        let info = ChunkInfo {
            pid: self.info.pid,
            tid: self.info.tid,
            process_key: self.info.process_key,
            thread_key: self.info.thread_key,
            ..ChunkInfo::default()
        };
        *self = Self::new(info, self.period_ns, self.cpu_ns());
    }

    /// Takes a sample.
    pub(super) fn push(&mut self, mut sample: Waiting) {
        self.used |= !sample.is_own;
        self.taken += 1;
        sample.head.nonce = self.taken;
        self.newest_ns = sample.head.time_ns;
        if self.newest_ns <= self.read_ns {
            self.sampled_ns = self.newest_ns;
        }
        self.waiting.push(sample);
    }

    /// Counts samples that found no room.
    pub(super) fn lose(&mut self, samples: u64) {
        self.info.lost_samples = self.info.lost_samples.saturating_add(samples);
    }

    /// Notes the thread's CPU time, and when it was read.
    pub(super) fn observe(&mut self, cpu_ns: u64, now_ns: u64) {
        let cpu_ns = cpu_ns.saturating_sub(self.base_ns);
        self.info.cpu_ns = cpu_ns.max(self.info.cpu_ns);
        self.read_ns = now_ns;
        if self.newest_ns <= now_ns {
            self.sampled_ns = self.newest_ns;
        }
        if self.waiting.len() >= ENOUGH {
            self.weigh();
        }
    }

    /// It ended at that time. Where its clock was read before, that was shortly after a sample: a
    /// whole period passes from that sample to the next one, and not from the reading.
    pub(super) fn end(&mut self, time_ns: u64) {
        let since_ns = self.read_ns.saturating_sub(self.sampled_ns);
        let half_ns = self.period_ns / 2;
        let (goes_on, is_sampled) = (self.read_ns < time_ns, self.newest_ns > self.read_ns);
        if self.sampled_ns > 0 && goes_on && since_ns < self.period_ns {
            let cpu_ns = (self.info.cpu_ns + half_ns).saturating_sub(since_ns);
            self.info.cpu_ns = match is_sampled {
                true => cpu_ns,
                false => cpu_ns
                    .max(self.info.cpu_ns)
                    .min(self.info.cpu_ns + time_ns - self.read_ns),
            };
        }
        self.weigh();
    }

    /// Gives the samples that wait their weight.
    pub(super) fn weigh(&mut self) {
        let used = self.info.cpu_ns.saturating_sub(self.start_ns) + self.period_ns / 2;
        let total = used / self.period_ns.max(1) + self.unread();
        let due = total.saturating_sub(self.info.weight);
        let count = self.waiting.len() as u64;
        for (index, mut waiting) in (0u64..).zip(std::mem::take(&mut self.waiting)) {
            waiting.head.weight = (index + 1) * due / count - index * due / count;
            match waiting.is_own {
                true => self.info.weight = self.info.weight.saturating_add(waiting.head.weight),
                false => self.write_sample(&waiting),
            }
        }
    }

    /// How many samples were taken since the clock was read.
    fn unread(&self) -> u64 {
        let unread = |waiting: &&Waiting| waiting.head.time_ns > self.read_ns;
        self.waiting.iter().filter(unread).count() as u64
    }

    fn write_sample(&mut self, sample: &Waiting) {
        if !sample.kernel.is_empty() {
            self.write_kernel(sample);
        }
        let written = self.records.sample(&sample.head, &sample.frames);
        if !written {
            self.close_chunk(); // a stack of more frames than one can have
            self.info.lost_weight += sample.head.weight;
            return self.lose(1);
        }
        self.info.samples += 1;
        self.info.weight = self.info.weight.saturating_add(sample.head.weight);
        if self.records.are_enough() {
            self.close_chunk();
        }
    }

    /// The kernel's half, with the same place in user mode: both are of one moment.
    fn write_kernel(&mut self, sample: &Waiting) {
        let ip = sample.frames.first().map_or(0, |leaf| leaf.pc.0);
        let head = KernelHead {
            cursor: sample.head.nonce,
            time_ns: sample.head.time_ns,
            user_ip: ip,
            user_sp: sample.head.sp,
            event: CPU_EVENT,
            value: 0,
            cookie: 0,
            more: sample.head.weight.saturating_sub(1),
        };
        self.records.kernel(&head, &sample.kernel);
    }

    /// Adds another record to its chunk.
    pub(super) fn write(&mut self, kind: RecordKind, encode: impl Fn(&mut Encoder<'_>)) {
        self.records.other(kind, encode);
    }

    /// Ends the chunk: the next one decodes by itself.
    pub(super) fn close_chunk(&mut self) {
        let records = self.records.take();
        if !records.is_empty() {
            let committed = u32::try_from(records.len()).unwrap_or(u32::MAX);
            let info = ChunkInfo {
                committed,
                cpu_ns: self.cpu_ns(),
                ..self.info
            };
            self.done.push((info, records));
        }
    }

    /// Closed chunks, numbered from `sequence` on.
    pub(super) fn take(&mut self, sequence: &mut u64) -> Vec<Chunk> {
        let mut chunks = std::mem::take(&mut self.done);
        for (info, _) in &mut chunks {
            info.sequence = *sequence;
            *sequence += 1;
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::wire::{record, sample};

    fn thread(start_ns: u64) -> Thread {
        let info = ChunkInfo {
            pid: 1,
            tid: 1,
            ..ChunkInfo::default()
        };
        Thread::new(info, 1000, start_ns)
    }

    fn waiting(nonce: u64) -> Waiting {
        Waiting {
            head: SampleHead {
                nonce,
                time_ns: nonce,
                ..SampleHead::default()
            },
            frames: vec![Frame::default(); 3],
            kernel: Vec::new(),
            is_own: false,
        }
    }

    #[test]
    fn weights_add_up_to_the_cpu_time_however_many_samples_came() {
        let mut thread = thread(700);
        let mut nonce = 0;
        for round in 1..=100u64 {
            for _ in 0..round % 7 {
                nonce += 1;
                thread.push(waiting(nonce));
            }
            thread.observe(700 + round * 3300, nonce);
            if round % 5 == 0 {
                thread.weigh();
            }
        }
        thread.push(waiting(nonce + 1));
        thread.weigh();
        assert_eq!(thread.info.weight, 330 + 1);
        assert_eq!(thread.info.samples, nonce + 1);
        assert_eq!(thread.cpu_ns(), 700 + 331_000);
    }

    #[test]
    fn brief_threads_whose_clock_was_read_somewhere_weigh_what_they_used_together() {
        const LIFE: u64 = 2100;
        for read_after in [1, 300, 700, 999, 5000] {
            let (mut cpu_ns, mut weight) = (0, 0);
            for phase in 0..1000 {
                let begins = 1_000_000;
                let mut thread = thread(0);
                let mut is_read = false;
                for at in (phase..LIFE).step_by(1000) {
                    // As soon as it is sampled, and once.
                    let read = phase + read_after;
                    if at > read && !std::mem::replace(&mut is_read, true) {
                        thread.observe(read, begins + read);
                    }
                    thread.push(waiting(begins + at));
                }
                let read = phase + read_after;
                if !is_read && read < LIFE {
                    thread.observe(read, begins + read);
                }
                thread.end(begins + LIFE);
                cpu_ns += thread.cpu_ns();
                weight += thread.info.weight * 1000;
            }
            for sum in [cpu_ns, weight] {
                let share = sum / (LIFE * 10);
                assert!((98..=102).contains(&share), "{read_after}: {share} %");
            }
        }
    }

    #[test]
    fn its_cpu_time_goes_on_behind_the_last_look_at_its_clock() {
        let mut thread = thread(0);
        (1..=5).for_each(|nonce| thread.push(waiting(nonce)));
        thread.observe(5000, 5);
        (6..=8).for_each(|nonce| thread.push(waiting(nonce)));
        // Where the program that it becomes begins to count.
        assert_eq!(thread.cpu_ns(), 8000);
        thread.weigh();
        assert_eq!((thread.cpu_ns(), thread.info.weight), (8000, 8));
    }

    #[test]
    fn chunks_read_back_each_by_itself() {
        let mut thread = thread(0);
        for nonce in 1..=2000 {
            thread.push(Waiting {
                kernel: vec![0xffff_ffff_8100_0000 + nonce; 4],
                ..waiting(nonce)
            });
        }
        thread.weigh();
        thread.close_chunk();
        let mut sequence = 5;
        let chunks = thread.take(&mut sequence);
        assert!(chunks.len() > 1);
        assert_eq!(sequence, 5 + chunks.len() as u64);
        let mut weight = 0;
        for (info, records) in &chunks {
            assert_eq!(info.committed as usize, records.len());
            let (mut rest, mut before) = (&records[..], SampleHead::default());
            while !rest.is_empty() {
                let record = record::parse(rest).unwrap();
                if record.kind == RecordKind::Sample as u8 {
                    before = sample::Sample::decode(record.payload, &before)
                        .unwrap()
                        .head;
                    weight += before.weight;
                }
                rest = &rest[record.length..];
            }
        }
        assert_eq!(weight, 2000);
        assert_eq!(chunks.last().unwrap().0.weight, 2000);
    }
}
