//! What the recording is told of a program run: who it is, what it has mapped, and the chunks of
//! its threads.
//!
//! Not here: what is in those ([`super::super::copied_thread`]), and its context switches
//! ([`super::off_cpu`]).

use super::super::Settings;
use super::{Mapped, Nature, Run};
use crate::processes::{self, Identity};
use crate::recording::records::{Chunk, Records};
use engine::wire::chunk::{ChunkInfo, FROM_SWITCHES};
use engine::wire::module::Module;
use engine::wire::process::Process;
use engine::wire::record::RecordKind;
use engine::wire::session::SegmentTotals;

impl Run {
    /// Hands over what is ready for the recording. Gives pid and key if this is the first of it.
    pub(in crate::copy) fn emit(
        &mut self,
        settings: &Settings,
        out: &mut Vec<Chunk>,
    ) -> Option<(u32, u64)> {
        if self.nature != Nature::Copied {
            return None;
        }
        let mut chunks = std::mem::take(&mut self.ended);
        for thread in self.threads.values_mut() {
            chunks.extend(thread.take(&mut self.sequence));
        }
        if chunks.is_empty() {
            return None;
        }
        let first = !self.identified;
        let mut records = Records::default();
        if first {
            self.identify(settings, &mut records);
            self.identified = true;
        }
        self.write_mapped(self.recorded, &mut records);
        self.recorded = self.mapped.len();
        self.write_described(self.described, &mut records);
        self.described = self.interpreters.descriptions.count();
        if !records.are_none() {
            let sequence = self.sequence & FROM_SWITCHES;
            let owner = self.owner_of(0);
            out.push(records.into_chunk(ChunkInfo { sequence, ..owner }));
        }
        out.extend(chunks);
        first.then_some((self.owner_of(0).pid, self.key))
    }

    pub(super) fn write_mapped(&self, from: usize, records: &mut Records) {
        for mapped in self.mapped.get(from..).unwrap_or_default() {
            mapped.encode(records);
        }
    }

    pub(super) fn write_described(&self, from: usize, records: &mut Records) {
        for (number, description) in self.interpreters.descriptions.since(from) {
            let (code, more) = description.code(number, self.key).parts();
            records.other(RecordKind::Code, |out| code.encode(out));
            for lines in more {
                records.other(RecordKind::MoreLines, |out| lines.encode(out));
            }
        }
    }

    /// Writes who the process is, as far as it can still be asked.
    pub(super) fn identify(&self, settings: &Settings, records: &mut Records) {
        let asked = || processes::identity(self.pid);
        let known = self.found.as_ref().or(self.asked.as_ref()).cloned();
        let mut found = known.unwrap_or_else(asked);
        let is_told = self.is_adopted() && !found.executable.is_empty();
        if let Some(first) = self.mapped.first().filter(|_| !is_told) {
            // What the kernel mapped first at exec is the program, however little is left of the
            // process. In one that ran already the first is the one at the lowest address.
            found.executable.clone_from(&first.path);
        }
        let process = Process {
            cpu_ns: 0,
            thread_cpu_ns: 0,
            origin: self.origin,
            parent_pid: match self.parent_pid {
                0 => found.parent,
                known => known,
            },
            parent_key: self.parent_key,
            time_ns: self.key,
            realtime_offset_ns: settings.realtime_offset_ns,
            start_ticks: found.start_ticks,
            asked_period_ns: settings.asked_period_ns,
            period_ns: settings.period_ns,
            max_depth: settings.max_depth as u64,
            ns_pids: &found.ns_pids,
            pid_namespace: 0,
            executable: &found.executable,
            command: &found.command,
            called: &found.called,
            cgroup: &found.cgroup,
            container: &found.container,
        };
        records.other(RecordKind::Process, |out| process.encode(out));
        if self.unwatched > 0 {
            let totals = SegmentTotals {
                unarmed_threads: self.unwatched,
                ..SegmentTotals::default()
            };
            records.other(RecordKind::SegmentTotals, |out| totals.encode(out));
        }
    }

    /// A record of a process that is not profiled, and why.
    pub(in crate::copy) fn unprofiled(
        mut self,
        time_ns: u64,
        identity: Identity,
        why: &str,
        settings: &Settings,
    ) -> Chunk {
        self.found = Some(identity);
        let mut records = Records::default();
        self.identify(settings, &mut records);
        records.note(time_ns, why);
        records.into_chunk(self.owner())
    }
}

impl Mapped {
    fn encode(&self, records: &mut Records) {
        let module = Module {
            time_ns: self.time_ns,
            start: self.range.start,
            end: self.range.end,
            bias: self.bias,
            build_id: &self.image.build_id,
            path: &self.path,
            ours: false, // which only the process itself can say
        };
        records.other(RecordKind::Module, |out| module.encode(out));
    }
}
