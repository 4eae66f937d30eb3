//! Single records of a `perf.data` file, as bytes. Every one but samples ends with the thread and
//! the time (`sample_id`).
//!
//! Not here: which records there are and in which order (`timeline`).

use perf_data::format::{misc, record};

/// Who a record is about, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// `CLOCK_MONOTONIC`, ns.
    pub(super) time_ns: u64,
}

/// A record on its way into bytes.
struct Body(Vec<u8>);

impl Body {
    fn new(kind: u32, misc: u16) -> Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend_from_slice(&misc.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        Self(bytes)
    }

    fn word(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn long(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn longs(mut self, values: &[u64]) -> Self {
        for value in values {
            self.0.extend_from_slice(&value.to_le_bytes());
        }
        self
    }

    /// Text, ended by a zero byte and padded to 8 bytes; cut where a record would get too long.
    fn text(mut self, text: &str) -> Self {
        let text = text.as_bytes();
        let end = text.iter().position(|byte| *byte == 0);
        let text = text.get(..end.unwrap_or(text.len()).min(4095));
        self.0.extend_from_slice(text.unwrap_or_default());
        self.0.push(0);
        let padded = self.0.len().next_multiple_of(8);
        self.0.resize(padded, 0);
        self
    }

    fn thread_and_time(self, who: Who) -> Vec<u8> {
        self.word(who.pid).word(who.tid).long(who.time_ns).end()
    }

    /// Fills in the length.
    fn end(mut self) -> Vec<u8> {
        let length = u16::try_from(self.0.len()).unwrap_or(u16::MAX);
        self.0.truncate(usize::from(length));
        if let Some(place) = self.0.get_mut(6..8) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        self.0
    }
}

/// Where the kernel's own code lies; `text`: its first symbol, or 0 if that is not known.
pub(super) fn kernel_map(start: u64, length: u64, text: u64) -> Vec<u8> {
    let body = Body::new(record::MMAP, misc::KERNEL).word(u32::MAX).word(0);
    let body = body.long(start).long(length).long(text);
    body.text("[kernel.kallsyms]_text")
        .thread_and_time(Who::default())
}

/// A file, or something in its stead, mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) length: u64,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Empty if there is none.
    pub(super) build_id: Vec<u8>,
    pub(super) path: String,
}

/// PROT_READ and PROT_EXEC.
const PROTECTION: u32 = 5;
/// MAP_PRIVATE.
const FLAGS: u32 = 2;
/// Longest build-id that a record holds.
const BUILD_ID: usize = 20;

pub(super) fn map(who: Who, mapping: &Mapping) -> Vec<u8> {
    let id = mapping.build_id.get(..BUILD_ID.min(mapping.build_id.len()));
    let id = id.filter(|id| !id.is_empty());
    let bits = misc::USER | id.map_or(0, |_| misc::MMAP_BUILD_ID);
    let body = Body::new(record::MMAP2, bits).word(who.pid).word(who.tid);
    let body = body
        .long(mapping.start)
        .long(mapping.length)
        .long(mapping.offset);
    let mut file = [0; 24];
    if let Some(id) = id {
        file[0] = u8::try_from(id.len()).unwrap_or(0);
        for (place, byte) in file.iter_mut().skip(4).zip(id) {
            *place = *byte;
        }
    }
    let mut body = body;
    body.0.extend_from_slice(&file);
    let body = body.word(PROTECTION).word(FLAGS);
    body.text(&mapping.path).thread_and_time(who)
}

/// A thread's name; `exec`: the process begins another program with it.
pub(super) fn name(who: Who, name: &str, exec: bool) -> Vec<u8> {
    let bits = if exec { misc::COMM_EXEC } else { 0 };
    let body = Body::new(record::COMM, bits).word(who.pid).word(who.tid);
    // The kernel keeps 15 bytes, and perf's tables are laid out for it.
    let end = (0..=15)
        .rev()
        .find(|end| name.is_char_boundary((*end).min(name.len())));
    let short = name.get(..end.unwrap_or(0).min(name.len()));
    body.text(short.unwrap_or_default()).thread_and_time(who)
}

/// A thread begins, or a process with its first one.
pub(super) fn fork(who: Who, parent_pid: u32, parent_tid: u32) -> Vec<u8> {
    task(record::FORK, who, parent_pid, parent_tid)
}

/// A thread ends.
pub(super) fn exit(who: Who, parent_pid: u32) -> Vec<u8> {
    task(record::EXIT, who, parent_pid, parent_pid)
}

fn task(kind: u32, who: Who, parent_pid: u32, parent_tid: u32) -> Vec<u8> {
    let body = Body::new(kind, 0).word(who.pid).word(parent_pid);
    let body = body.word(who.tid).word(parent_tid).long(who.time_ns);
    body.thread_and_time(who)
}

/// A sample: its leaf is the first address of `chain` that is no mark. `in_kernel`: whose code that
/// is.
pub(super) fn sample(
    who: Who,
    leaf: u64,
    period_ns: u64,
    chain: &[u64],
    in_kernel: bool,
) -> Vec<u8> {
    let mode = if in_kernel { misc::KERNEL } else { misc::USER };
    let body = Body::new(record::SAMPLE, mode).long(leaf);
    let body = body.word(who.pid).word(who.tid).long(who.time_ns);
    body.long(period_ns)
        .long(chain.len() as u64)
        .longs(chain)
        .end()
}

/// The user's stack that earlier samples of the thread with this cookie end in.
pub(super) fn deferred(who: Who, cookie: u64, stack: &[u64]) -> Vec<u8> {
    let body = Body::new(record::CALLCHAIN_DEFERRED, misc::USER).long(cookie);
    body.long(stack.len() as u64)
        .longs(stack)
        .thread_and_time(who)
}
