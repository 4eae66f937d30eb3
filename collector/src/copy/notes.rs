//! What a reader of the profile should know of copied stacks, in words: notes of the first program
//! run that has some.

use super::Settings;
use crate::numbers::plural;
use crate::recording::records::{Chunk, Records};
use engine::wire::chunk::{ChunkInfo, FROM_SWITCHES};

/// Totals of the copies of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) samples: u64,
    pub(super) bytes: u64,
    /// Stacks that were deeper than what was copied.
    pub(super) cut: u64,
    /// Copies that were dropped, as their threads unwound these stacks themselves.
    pub(super) dropped: u64,
    pub(super) dropped_bytes: u64,
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

    /// A stack was copied that is in the recording already.
    pub(super) const fn dropped(&mut self, bytes: usize) {
        self.dropped += 1;
        self.dropped_bytes += bytes as u64;
    }

    /// Whether nothing of it is worth a word of warning: nothing lost, one in a hundred cut short.
    const fn are_well(&self) -> bool {
        self.lost == 0 && self.cut * 100 <= self.samples
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
    let mut text = format!(
        "stacks of {programs} were copied by the kernel ({} copies, {:.1} MB) and unwound by rsunwind; {} cut short at {} KiB, {} lost",
        counts.samples,
        counts.bytes as f64 / 1e6,
        counts.cut,
        settings.stack_bytes >> 10,
        counts.lost
    );
    if counts.dropped > 0 {
        text += &format!(
            "; {} ({:.1} MB) for nothing, of threads that unwound themselves",
            plural(counts.dropped, "further copy", "further copies"),
            counts.dropped_bytes as f64 / 1e6
        );
    }
    let sequence = if settings.beside { FROM_SWITCHES } else { 0 };
    let is_well = counts.are_well();
    (counts.first).map(|owner| note(owner, sequence, time_ns, &text, is_well))
}

/// What became of the records of context switches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    /// Absences recorded.
    pub(super) absences: u64,
    /// Those left out because their end was lost, or may have been.
    pub(super) unpaired: u64,
    /// Records lost.
    pub(super) lost: u64,
}

/// Of context switches.
pub(super) fn of_switches(
    counts: &Counts,
    pairs: &Pairs,
    settings: &Settings,
    time_ns: u64,
) -> Option<Chunk> {
    let mut text = format!(
        "off the CPU {}: {:.1} MB of stacks copied by the kernel, {} cut short at {} KiB, {} lost",
        plural(pairs.absences, "time", "times"),
        counts.bytes as f64 / 1e6,
        counts.cut,
        settings.switch_bytes >> 10,
        counts.lost,
    );
    if pairs.lost > 0 || pairs.unpaired > 0 {
        text += &format!(
            "; {} of switches lost, and {} left out because of that",
            plural(pairs.lost, "record", "records"),
            plural(pairs.unpaired, "absence", "absences"),
        );
    }
    let is_well = counts.are_well() && pairs.lost == 0 && pairs.unpaired == 0;
    let first = counts.first;
    first.map(|owner| note(owner, FROM_SWITCHES, time_ns, &text, is_well))
}

fn note(
    (pid, process_key): (u32, u64),
    sequence: u64,
    time_ns: u64,
    text: &str,
    is_well: bool,
) -> Chunk {
    let mut records = Records::default();
    match is_well {
        true => records.account(time_ns, text),
        false => records.note(time_ns, text),
    }
    let owner = ChunkInfo {
        pid,
        process_key,
        sequence,
        ..ChunkInfo::default()
    };
    records.into_chunk(owner)
}
