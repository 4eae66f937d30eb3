//! Makes recordings for tests, with the wire encoders that the profiled process uses.

pub(crate) use super::write::header;
use super::write::{LONGEST_RECORD, Writer};
use super::{KernelHalf, LabelsId, RawSample, ThreadId};
use engine::address::RuntimeAddress;
use engine::wire::chunk::{ChunkInfo, ChunkState, FROM_SWITCHES};
use engine::wire::codec::Encoder;
use engine::wire::file::{FileInfo, FileKind};
use engine::wire::kernel::{self, KernelHead};
use engine::wire::offer::CPU_EVENT;
use engine::wire::record::{self, RecordKind};
use engine::wire::sample::{self, Frame, Method, SampleHead, StopReason, Trigger};
use engine::wire::source::OFF_CPU;
use std::io::Cursor;

/// A chunk being made, as a thread makes it.
#[derive(Clone)]
pub(crate) struct Chunk {
    pub(crate) info: ChunkInfo,
    pub(crate) bytes: Vec<u8>,
    before: Option<(SampleHead, Vec<Frame>)>,
    kernel_before: Option<(KernelHead, Vec<u64>)>,
}

impl Chunk {
    pub(crate) fn new(pid: u32, tid: u32, sequence: u64) -> Self {
        Self {
            info: ChunkInfo {
                pid,
                tid,
                process_key: u64::from(pid) * 1000,
                thread_key: u64::from(tid) * 1000 + 1,
                sequence,
                state: ChunkState::Sealed as u32,
                ..ChunkInfo::default()
            },
            bytes: Vec::new(),
            before: None,
            kernel_before: None,
        }
    }

    pub(crate) fn record(
        mut self,
        kind: RecordKind,
        encode: impl FnOnce(&mut Encoder<'_>),
    ) -> Self {
        let mut buffer = vec![0; LONGEST_RECORD];
        let mut out = Encoder::new(&mut buffer[record::HEADER_SIZE..]);
        encode(&mut out);
        let payload = out.finish().unwrap();
        let length = record::seal(&mut buffer, kind, payload).unwrap();
        self.bytes.extend_from_slice(&buffer[..length]);
        self.info.committed = u32::try_from(self.bytes.len()).unwrap();
        self
    }

    pub(crate) fn sample(self, head: SampleHead, pcs: &[u64]) -> Self {
        let frames: Vec<Frame> = pcs
            .iter()
            .enumerate()
            .map(|(index, pc)| {
                let method = if index == 0 {
                    Method::Registers
                } else {
                    Method::EhFrame
                };
                Frame::native(RuntimeAddress(*pc), method)
            })
            .collect();
        self.sample_of(head, frames)
    }

    pub(crate) fn sample_of(mut self, head: SampleHead, frames: Vec<Frame>) -> Self {
        let before = self.before.take();
        self.info.samples += 1;
        self.info.weight += head.weight;
        let mut made = self.record(RecordKind::Sample, |out| {
            let before = before.as_ref().map(|(head, frames)| (head, &frames[..]));
            sample::encode(out, before, &head, &frames);
        });
        made.before = Some((head, frames));
        made
    }

    /// A kernel's half, told as what differs from the one before.
    pub(crate) fn kernel(mut self, head: KernelHead, frames: &[u64]) -> Self {
        let before = self.kernel_before.take();
        let mut made = self.record(RecordKind::Kernel, |out| {
            let before = before.as_ref().map(|(head, frames)| (head, &frames[..]));
            kernel::encode(out, before, &head, frames);
        });
        made.kernel_before = Some((head, frames.to_vec()));
        made
    }
}

/// A chunk of context switches: absences of a thread of the process that the kernel saw begin at
/// those times, each of which began at one time and lasted as long as the other says.
pub(crate) fn absences(
    (pid, process_key): (u32, u64),
    (tid, thread_key): (u32, u64),
    number: u64,
    absences: &[(u64, u64)],
) -> Chunk {
    let mut chunk = Chunk::new(pid, tid, FROM_SWITCHES | number);
    chunk.info.process_key = process_key;
    chunk.info.thread_key = thread_key;
    let frames = [0xffff_ffff_8100_0030u64];
    for ((time_ns, value), cursor) in absences.iter().zip(1..) {
        let kernel = KernelHead {
            cursor,
            time_ns: *time_ns,
            user_ip: 0x1010,
            user_sp: 0x7000,
            event: OFF_CPU,
            value: *value,
            ..KernelHead::default()
        };
        chunk = chunk.kernel(kernel, &frames);
        let user = SampleHead {
            nonce: cursor,
            sp: 0x7000,
            ..head(*time_ns, 0)
        };
        chunk = chunk.sample(user, &[0x1010, 0x20]);
    }
    chunk
}

/// A head with that time and weight, of a complete stack.
pub(crate) fn head(time_ns: u64, weight: u64) -> SampleHead {
    SampleHead {
        nonce: time_ns,
        time_ns,
        weight,
        trigger: Trigger::PerfUser,
        stop: StopReason::Root,
        ..SampleHead::default()
    }
}

/// A recording of those chunks.
pub(crate) fn recording(chunks: &[Chunk]) -> Vec<u8> {
    let mut writer = Writer::begin(Cursor::new(Vec::new())).unwrap();
    for chunk in chunks {
        writer.append(&chunk.info, &chunk.bytes).unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner().into_inner()
}

/// That recording, packed.
pub(crate) fn packed(recording: &[u8]) -> Vec<u8> {
    let mut packed = Cursor::new(Vec::new());
    assert!(Writer::pack(&mut &*recording, &mut packed, |_, _| true).unwrap());
    packed.into_inner()
}

/// A segment of those chunks, each in a slot of the segment's stride.
pub(crate) fn segment(chunks: &[Chunk]) -> Vec<u8> {
    use engine::wire::chunk::SEGMENT_STRIDE;
    let header = FileInfo {
        kind: FileKind::Segment,
        ..header()
    };
    let mut bytes = header.to_bytes().to_vec();
    for chunk in chunks {
        let start = bytes.len();
        let info = ChunkInfo {
            stride: u32::try_from(SEGMENT_STRIDE).unwrap(),
            ..chunk.info
        };
        bytes.extend_from_slice(&info.to_bytes());
        bytes.extend_from_slice(&chunk.bytes);
        bytes.resize(start + SEGMENT_STRIDE, 0);
    }
    bytes
}

/// A sample of a thread's CPU time of that weight, without a stack.
pub(crate) fn stackless(thread: ThreadId, weight: u64) -> RawSample {
    RawSample {
        thread,
        time_ns: 0,
        weight,
        stack: None,
        trigger: Trigger::PerfKernel,
        stop: StopReason::Root,
        flags: 0,
        kernel: KernelHalf::None,
        entry_ip: 0,
        event: CPU_EVENT,
        value: 0,
        cookie: 0,
        labels: LabelsId::NONE,
    }
}
