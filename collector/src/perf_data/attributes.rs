//! The attributes of an event of a `perf.data` file: which fields its samples have, and which clock
//! dates them.
//!
//! Read here and not by `linux-perf-event-reader`, which is for records of perf's own making: it
//! ends the program on a build-id of more than 20 bytes, reads counts of groups and of single
//! events the wrong way round, and does not know lost counts.

use super::bytes::{Bytes, Malformed};
use engine::perf_event::kind::SOFTWARE;
use engine::perf_event::software::{CPU_CLOCK, DUMMY, TASK_CLOCK};
use engine::perf_event::{flag, sample};

/// What a clock of perf's is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's scheduler clock: perf's own.
    Own,
    /// Another, by the number that the kernel has for it (`-k`).
    Id(i32),
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    kind: u32,
    config: u64,
    /// A period, or a frequency ([`flag::FREQUENCY`]).
    period: u64,
    fields: u64,
    counts: u64,
    flags: u64,
    branches: u64,
    registers: u64,
    clock: i32,
    /// The numbers by which its samples say that they are its own.
    pub(super) ids: Vec<u64>,
    /// As perf names it; empty if the file does not say.
    pub(super) name: String,
}

/// The fields of a sample that are of use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Where it was.
    pub ip: u64,
    /// Process, in perf's own PID namespace.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// By the event's clock, ns.
    pub time: u64,
    /// What the event counted.
    pub period: Option<u64>,
    /// The call chain, with its marks.
    pub chain: Vec<u64>,
    /// The user's registers: stack pointer and instruction pointer.
    pub user: Option<(u64, u64)>,
}

/// `PERF_SAMPLE_BRANCH_HW_INDEX`.
const BRANCH_INDEX: u64 = 1 << 17;
/// Bits of the user registers on x86-64, and the order in which they lie.
const SP: u32 = 7;
const IP: u32 = 8;

impl Event {
    pub(super) fn parse(mut from: Bytes<'_>, ids: Vec<u64>) -> Result<Self, Malformed> {
        let start = from;
        let (kind, size) = (from.word()?, from.word()?);
        let fixed = [(); 5].map(|()| from.long());
        let [config, period, fields, counts, flags] = fixed;
        let _ = (from.long()?, from.long()?);
        if size < 64 || !start.rest().len().ge(&(size as usize)) {
            return Err(start.error(format!(
                "attributes of an event have a length of {size} bytes"
            )));
        }
        // Fields that came later; a shorter structure means 0.
        let mut later = |wanted: u32| if size >= wanted { from.long() } else { Ok(0) };
        let _config2 = later(72)?;
        let (branches, registers, clock) = (later(80)?, later(96)?, later(96)?);
        Ok(Self {
            kind,
            config: config?,
            period: period?,
            fields: fields?,
            counts: counts?,
            flags: flags?,
            branches,
            registers,
            clock: ((clock >> 32) as u32).cast_signed(),
            ids,
            name: String::new(),
        })
    }

    /// Its name, made up of its type and number if the file does not say.
    #[must_use]
    pub fn name(&self) -> String {
        match self.name.is_empty() {
            true => format!("type {} event {:#x}", self.kind, self.config),
            false => self.name.clone(),
        }
    }

    /// Whether it never happens: perf has one to hear of processes and mappings by.
    #[must_use]
    pub fn is_dummy(&self) -> bool {
        self.kind == SOFTWARE && self.config == DUMMY
    }

    /// Every how many of its own units there is a sample; 0 if there are so many a second.
    #[must_use]
    pub fn fixed_period(&self) -> u64 {
        match self.flags & flag::FREQUENCY {
            0 => self.period,
            _ => 0,
        }
    }

    /// Whether it dates what it writes, and says whose it is: without that nothing can be joined.
    #[must_use]
    pub fn is_dated(&self) -> bool {
        let needed = sample::TID | sample::TIME;
        self.fields & needed == needed
    }

    /// Whether the kernel counts what happens by itself: page faults, context switches and the
    /// like.
    pub(super) fn is_counted_by_the_kernel(&self) -> bool {
        self.kind == SOFTWARE && !self.counts_time() && !self.is_dummy()
    }

    /// Which clock dates it.
    #[must_use]
    pub fn clock(&self) -> Clock {
        if self.flags & flag::USE_CLOCKID == 0 {
            Clock::Own
        } else {
            Clock::Id(self.clock)
        }
    }

    /// CPU time that a sample stands for, ns: as asked for.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        if self.flags & flag::FREQUENCY != 0 {
            1_000_000_000 / self.period.max(1)
        } else if self.counts_time() {
            self.period
        } else {
            1_000_000
        }
    }

    /// Whether it counts nanoseconds of CPU time.
    #[must_use]
    pub fn counts_time(&self) -> bool {
        self.kind == SOFTWARE && (self.config == CPU_CLOCK || self.config == TASK_CLOCK)
    }

    /// The number in a sample that says which event it is of. Of several events each has it in the
    /// same place; what else there is need not be the same, a period for one.
    pub(super) fn id(&self, mut from: Bytes<'_>) -> Result<Option<u64>, Malformed> {
        let has = |field| self.fields & field != 0;
        if has(sample::IDENTIFIER) {
            return from.long().map(Some);
        }
        if !has(sample::ID) {
            return Ok(None);
        }
        for before in [sample::IP, sample::TID, sample::TIME, sample::ADDR] {
            if has(before) {
                from.long()?;
            }
        }
        from.long().map(Some)
    }

    /// Reads a sample.
    pub(super) fn sample(&self, mut from: Bytes<'_>) -> Result<Fields, Malformed> {
        let has = |field| self.fields & field != 0;
        let mut fields = Fields::default();
        if has(sample::IDENTIFIER) {
            from.long()?;
        }
        if has(sample::IP) {
            fields.ip = from.long()?;
        }
        if has(sample::TID) {
            (fields.pid, fields.tid) = (from.word()?, from.word()?);
        }
        if has(sample::TIME) {
            fields.time = from.long()?;
        }
        if has(sample::ADDR) {
            from.long()?;
        }
        for unused in [sample::ID, sample::STREAM_ID, sample::CPU] {
            if has(unused) {
                from.long()?;
            }
        }
        // A fixed period is not repeated in the samples.
        fields.period = match has(sample::PERIOD) {
            true => Some(from.long()?),
            false => Some(self.fixed_period()).filter(|period| *period > 0),
        };
        if has(sample::READ) {
            self.skip_counts(&mut from)?;
        }
        if has(sample::CALLCHAIN) {
            fields.chain = from.longs()?;
        }
        if has(sample::RAW) {
            let length = from.word()?;
            from.skip(u64::from(length))?;
        }
        if has(sample::BRANCH_STACK) {
            let count = from.long()?;
            if self.branches & BRANCH_INDEX != 0 {
                from.long()?;
            }
            from.skip(count.saturating_mul(24))?;
        }
        if has(sample::REGS_USER) && from.long()? != 0 {
            fields.user = self.registers(&mut from)?;
        }
        Ok(fields)
    }

    fn skip_counts(&self, from: &mut Bytes<'_>) -> Result<(), Malformed> {
        // Enabled, running; number, lost; group.
        let times = u64::from((self.counts & 3).count_ones());
        let each = 1 + u64::from((self.counts & (1 << 2 | 1 << 4)).count_ones());
        let count = if self.counts & 1 << 3 != 0 {
            from.long()?
        } else {
            1
        };
        from.skip(
            count
                .saturating_mul(each)
                .saturating_add(times)
                .saturating_mul(8),
        )
    }

    fn registers(&self, from: &mut Bytes<'_>) -> Result<Option<(u64, u64)>, Malformed> {
        let wanted = self.registers;
        let (mut sp, mut ip) = (None, None);
        for bit in (0..64).filter(|bit| wanted >> bit & 1 == 1) {
            let value = from.long()?;
            match bit {
                SP => sp = Some(value),
                IP => ip = Some(value),
                _ => {}
            }
        }
        Ok(sp.zip(ip))
    }

    /// The process, thread and time at the end of a record that is no sample; `None` if it has
    /// none.
    pub(super) fn who(&self, record: &[u8]) -> Option<(u32, u32, u64)> {
        let has = |field| self.fields & field != 0;
        if self.flags & flag::SAMPLE_ID_ALL == 0 {
            return None;
        }
        let fields = [
            sample::TID,
            sample::TIME,
            sample::ID,
            sample::STREAM_ID,
            sample::CPU,
            sample::IDENTIFIER,
        ];
        let count = fields.into_iter().filter(|field| has(*field)).count();
        let start = record.len().checked_sub(8 * count)?;
        let mut from = Bytes::new(record.get(start..)?, 0, "a record");
        let (mut pid, mut tid, mut time) = (0, 0, 0);
        if has(sample::TID) {
            (pid, tid) = (from.word().ok()?, from.word().ok()?);
        }
        if has(sample::TIME) {
            time = from.long().ok()?;
        }
        Some((pid, tid, time))
    }
}
