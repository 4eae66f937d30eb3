//! What a reader of the profile should know of copied stacks, in words: notes of the first program run that has some.

use super::Settings;
use super::records::Records;
use super::run::own_chunk;
use super::thread::Chunk;
use crate::summary::plural;
use engine::wire::chunk::{ChunkInfo, FROM_SWITCHES};
use engine::wire::event::{Event, EventKind};
use engine::wire::record::RecordKind;

/// Totals of the copies of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) samples: u64,
    pub(super) bytes: u64,
    /// Stacks that were deeper than what was copied.
    pub(super) cut: u64,
    /// Records that found no room.
    pub(super) lost: u64,
    /// Program runs that are in the recording.
    pub(super) runs: u64,
    /// The first of them: pid and key.
    pub(super) first: Option<(u32, u64)>,
}

impl Counts {
    /// A stack was copied.
    pub(super) fn copied(&mut self, bytes: usize, cut: bool) {
        self.samples += 1;
        self.bytes += bytes as u64;
        self.cut += u64::from(cut);
    }

    /// A program run came into the recording.
    pub(super) fn recorded(&mut self, owner: (u32, u64)) {
        self.runs += 1;
        self.first.get_or_insert(owner);
    }
}

/// Of samples of CPU time.
pub(super) fn of_cpu_time(counts: &Counts, settings: &Settings, time_ns: u64) -> Option<Chunk> {
    let programs = plural(counts.runs, "program run", "program runs");
    let text = format!(
        "stacks of {programs} were copied by the kernel ({} copies, {:.1} MB) and unwound by rsunwind; {} cut short at {} KiB, {} lost",
        counts.samples,
        counts.bytes as f64 / 1e6,
        counts.cut,
        settings.stack_bytes >> 10,
        counts.lost
    );
    counts.first.map(|owner| note(owner, 0, time_ns, &text))
}

/// Of context switches; `absences` were recorded, and of `unpaired` ones the end was lost.
pub(super) fn of_switches(
    counts: &Counts,
    settings: &Settings,
    time_ns: u64,
    absences: u64,
    unpaired: u64,
) -> Option<Chunk> {
    let mut text = format!(
        "off the CPU {}: {:.1} MB of stacks copied by the kernel, {} cut short at {} KiB",
        plural(absences, "time", "times"),
        counts.bytes as f64 / 1e6,
        counts.cut,
        settings.switch_bytes >> 10,
    );
    if counts.lost > 0 || unpaired > 0 {
        text += &format!(
            "; {} found a ring full, and {} left out for it",
            plural(counts.lost, "record", "records"),
            plural(unpaired, "absence is", "absences are"),
        );
    }
    let first = counts.first;
    first.map(|owner| note(owner, FROM_SWITCHES, time_ns, &text))
}

fn note((pid, process_key): (u32, u64), sequence: u64, time_ns: u64, text: &str) -> Chunk {
    let note = Event {
        kind: EventKind::Note,
        time_ns,
        value: 0,
        text: text.as_bytes(),
    };
    let mut records = Records::default();
    records.other(RecordKind::Event, |out| note.encode(out));
    let owner = ChunkInfo {
        pid,
        process_key,
        sequence,
        ..ChunkInfo::default()
    };
    own_chunk(owner, records)
}
