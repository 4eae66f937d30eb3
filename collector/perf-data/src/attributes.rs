//! The attributes of an event of a `perf.data` file: which fields its samples have, and which clock
//! dates them.
//!
//! Read here and not by `linux-perf-event-reader`, which is for records of perf's own making: it
//! ends the program on a build-id of more than 20 bytes, reads counts of groups and of single
//! events the wrong way round, and does not know lost counts.

use crate::bytes::{Bytes, Malformed};
use linux_perf_event_reader::constants::{
    ATTR_FLAG_BIT_FREQ, ATTR_FLAG_BIT_SAMPLE_ID_ALL, ATTR_FLAG_BIT_USE_CLOCKID,
    PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_DUMMY, PERF_COUNT_SW_TASK_CLOCK, PERF_SAMPLE_ADDR,
    PERF_SAMPLE_BRANCH_STACK, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CPU, PERF_SAMPLE_ID,
    PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_IP, PERF_SAMPLE_PERIOD, PERF_SAMPLE_RAW, PERF_SAMPLE_READ,
    PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    PERF_TYPE_SOFTWARE,
};

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
    /// A period, or a frequency ([`ATTR_FLAG_BIT_FREQ`]).
    period: u64,
    fields: u64,
    counts: u64,
    flags: u64,
    branches: u64,
    registers: u64,
    clock: i32,
    /// The numbers by which its samples say that they are its own.
    pub(crate) ids: Vec<u64>,
    /// As perf names it; empty if the file does not say.
    pub(crate) name: String,
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
    pub(crate) fn parse(mut from: Bytes<'_>, ids: Vec<u64>) -> Result<Self, Malformed> {
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
        self.kind == PERF_TYPE_SOFTWARE && self.config == PERF_COUNT_SW_DUMMY
    }

    /// Every how many of its own units there is a sample; 0 if there are so many a second.
    #[must_use]
    pub fn fixed_period(&self) -> u64 {
        match self.flags & ATTR_FLAG_BIT_FREQ {
            0 => self.period,
            _ => 0,
        }
    }

    /// Whether it dates what it writes, and says whose it is: without that nothing can be joined.
    #[must_use]
    pub fn is_dated(&self) -> bool {
        let needed = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
        self.fields & needed == needed
    }

    /// Whether the kernel counts what happens by itself: page faults, context switches and the
    /// like.
    pub(crate) fn is_counted_by_the_kernel(&self) -> bool {
        self.kind == PERF_TYPE_SOFTWARE && !self.counts_time() && !self.is_dummy()
    }

    /// Which clock dates it.
    #[must_use]
    pub fn clock(&self) -> Clock {
        if self.flags & ATTR_FLAG_BIT_USE_CLOCKID == 0 {
            Clock::Own
        } else {
            Clock::Id(self.clock)
        }
    }

    /// CPU time that a sample stands for, ns: as asked for.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        if self.flags & ATTR_FLAG_BIT_FREQ != 0 {
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
        self.kind == PERF_TYPE_SOFTWARE
            && (self.config == PERF_COUNT_SW_CPU_CLOCK || self.config == PERF_COUNT_SW_TASK_CLOCK)
    }

    /// The number in a sample that says which event it is of. Of several events each has it in the
    /// same place; what else there is need not be the same, a period for one.
    pub(crate) fn id(&self, mut from: Bytes<'_>) -> Result<Option<u64>, Malformed> {
        let has = |field| self.fields & field != 0;
        if has(PERF_SAMPLE_IDENTIFIER) {
            return from.long().map(Some);
        }
        if !has(PERF_SAMPLE_ID) {
            return Ok(None);
        }
        for before in [
            PERF_SAMPLE_IP,
            PERF_SAMPLE_TID,
            PERF_SAMPLE_TIME,
            PERF_SAMPLE_ADDR,
        ] {
            if has(before) {
                from.long()?;
            }
        }
        from.long().map(Some)
    }

    /// Reads a sample.
    pub(crate) fn sample(&self, mut from: Bytes<'_>) -> Result<Fields, Malformed> {
        let has = |field| self.fields & field != 0;
        let mut fields = Fields::default();
        if has(PERF_SAMPLE_IDENTIFIER) {
            from.long()?;
        }
        if has(PERF_SAMPLE_IP) {
            fields.ip = from.long()?;
        }
        if has(PERF_SAMPLE_TID) {
            (fields.pid, fields.tid) = (from.word()?, from.word()?);
        }
        if has(PERF_SAMPLE_TIME) {
            fields.time = from.long()?;
        }
        if has(PERF_SAMPLE_ADDR) {
            from.long()?;
        }
        for unused in [PERF_SAMPLE_ID, PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_CPU] {
            if has(unused) {
                from.long()?;
            }
        }
        // A fixed period is not repeated in the samples.
        fields.period = match has(PERF_SAMPLE_PERIOD) {
            true => Some(from.long()?),
            false => Some(self.fixed_period()).filter(|period| *period > 0),
        };
        if has(PERF_SAMPLE_READ) {
            self.skip_counts(&mut from)?;
        }
        if has(PERF_SAMPLE_CALLCHAIN) {
            fields.chain = from.longs()?;
        }
        if has(PERF_SAMPLE_RAW) {
            let length = from.word()?;
            from.skip(u64::from(length))?;
        }
        if has(PERF_SAMPLE_BRANCH_STACK) {
            let count = from.long()?;
            if self.branches & BRANCH_INDEX != 0 {
                from.long()?;
            }
            from.skip(count.saturating_mul(24))?;
        }
        if has(PERF_SAMPLE_REGS_USER) && from.long()? != 0 {
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
    pub(crate) fn who(&self, record: &[u8]) -> Option<(u32, u32, u64)> {
        let has = |field| self.fields & field != 0;
        if self.flags & ATTR_FLAG_BIT_SAMPLE_ID_ALL == 0 {
            return None;
        }
        let fields = [
            PERF_SAMPLE_TID,
            PERF_SAMPLE_TIME,
            PERF_SAMPLE_ID,
            PERF_SAMPLE_STREAM_ID,
            PERF_SAMPLE_CPU,
            PERF_SAMPLE_IDENTIFIER,
        ];
        let count = fields.into_iter().filter(|field| has(*field)).count();
        let start = record.len().checked_sub(8 * count)?;
        let mut from = Bytes::new(record.get(start..)?, 0, "a record");
        let (mut pid, mut tid, mut time) = (0, 0, 0);
        if has(PERF_SAMPLE_TID) {
            (pid, tid) = (from.word().ok()?, from.word().ok()?);
        }
        if has(PERF_SAMPLE_TIME) {
            time = from.long().ok()?;
        }
        Some((pid, tid, time))
    }
}
