//! One program run of one process, from exec or fork on: what it has mapped, its threads, and what
//! goes into the recording about it.

mod off_cpu;
mod recorded;

use super::Settings;
use super::copied_thread::{Thread, Waiting};
use super::cpu_clock::Clock;
use crate::cpu_rings::Adopted;
use crate::interpreters::Interpreters;
use crate::off_cpu::{Presence, Stack, Switches};
use crate::processes::{self, FoundThread, Identity, Mapping};
use crate::recording::records::Chunk;
use crate::unwind::Code;
use crate::unwind::elf_sections::Image;
use crate::unwind::images::Images;
use engine::wire::chunk::{ChunkInfo, FROM_SWITCHES};
use engine::wire::process::Origin;
use engine::wire::record::RecordKind;
use engine::wire::thread::{self as wire_thread, ThreadEnd, ThreadEndReason};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Of chunks that are for readers to join with what threads say themselves; those of context
/// switches have lower numbers.
const BESIDE: u64 = FROM_SWITCHES | 1 << 40;

/// Who unwinds the stacks of a program run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// Not known yet; it has been sampled for that many ns.
    Unknown(u64),
    /// We do.
    Copied,
    /// It does, by the preload library; or it is rsunwind itself, before exec.
    OwnUnwinding,
}

/// A mapped file, for the recording.
#[derive(Clone)]
struct Mapped {
    time_ns: u64,
    range: Range<u64>,
    bias: u64,
    path: Vec<u8>,
    image: Arc<Image>,
}

/// What the recording knows of a program run for its context switches.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    process: bool,
    /// How many of its mapped files, and of the code objects of its interpreters.
    mapped: usize,
    described: usize,
}

/// A program run.
pub(super) struct Run {
    pid: i32,
    key: u64,
    nature: Nature,
    origin: Origin,
    pub(super) parent_pid: u32,
    parent_key: u64,
    pub(super) code: Code,
    mapped: Vec<Mapped>,
    /// How many of those are recorded.
    recorded: usize,
    /// How many code objects of its interpreters are.
    described: usize,
    threads: HashMap<i32, Thread>,
    names: HashMap<i32, Vec<u8>>,
    /// Chunks of threads that have ended.
    ended: Vec<Chunk>,
    sequence: u64,
    identified: bool,
    /// Threads that could not be sampled.
    unwatched: u64,
    /// Whether it is copied even if it can unwind itself.
    always_copied: bool,
    /// Who it is, if it ran before anybody looked.
    found: Option<Identity>,
    /// Who it is, as it was asked at its first sample: what is written later may be of a process
    /// that has ended.
    asked: Option<Identity>,
    /// Whether what was brought into it before, or into the one that it was forked from, may still
    /// be there ([`super::Beside`]).
    may_have_library: bool,
    /// Context switches of all its threads, whoever unwinds its stacks; `None` if they are not
    /// recorded.
    switches: Option<Switches>,
    /// What the recording knows for those.
    switches_know: Known,
    /// Who tells of the frames of its interpreters in those.
    pub(super) interpreters: Interpreters,
    /// Its number in a PID namespace of its own, which is what the preload library knows it by.
    inner_pid: Option<u32>,
    /// Whether the recording must know of it even without any: where the life of the program run
    /// before it ends.
    bounds: bool,
}

impl Run {
    pub(super) fn new(pid: i32, time_ns: u64, nature: Nature, settings: &Settings) -> Self {
        let sequence = if settings.beside { BESIDE } else { 0 };
        Self {
            switches: settings.switches.then(Switches::default),
            switches_know: Known::default(),
            interpreters: Interpreters::default(),
            inner_pid: None,
            bounds: false,
            pid,
            key: time_ns,
            nature,
            origin: Origin::Exec,
            parent_pid: 0,
            parent_key: 0,
            code: Code::of(pid),
            mapped: Vec::new(),
            recorded: 0,
            described: 0,
            threads: HashMap::new(),
            names: HashMap::new(),
            ended: Vec::new(),
            sequence,
            identified: false,
            unwatched: 0,
            always_copied: settings.running,
            found: None,
            asked: None,
            may_have_library: false,
        }
    }

    /// A child of fork: the same program, without its threads.
    pub(super) fn forked(&self, pid: i32, time_ns: u64, settings: &Settings) -> Self {
        let mapped = self.mapped.iter().cloned();
        Self {
            origin: Origin::Fork,
            parent_pid: self.pid.unsigned_abs(),
            parent_key: self.key,
            code: self.code.forked(pid),
            may_have_library: self.may_have_library,
            mapped: mapped.map(|mapped| Mapped { time_ns, ..mapped }).collect(),
            ..Self::new(pid, time_ns, self.nature, settings)
        }
    }

    /// A thread has begun, and is on a CPU or not.
    pub(super) fn begin_thread(
        &mut self,
        tid: i32,
        time_ns: u64,
        period_ns: u64,
        cpu_ns: u64,
        presence: Presence<Stack>,
    ) {
        let owner = self.owner_of_switches(tid);
        if let Some(switches) = &mut self.switches {
            switches.begin(owner, tid, time_ns, presence);
        }
        self.sample_thread(tid, time_ns, period_ns, cpu_ns);
    }

    fn sample_thread(&mut self, tid: i32, time_ns: u64, period_ns: u64, cpu_ns: u64) {
        let info = ChunkInfo {
            thread_key: time_ns,
            ..self.owner_of(tid)
        };
        let thread = Thread::new(info, period_ns, cpu_ns);
        self.threads.insert(tid, thread);
    }

    fn owner(&self) -> ChunkInfo {
        ChunkInfo {
            pid: self.pid.unsigned_abs(),
            process_key: self.key,
            ..ChunkInfo::default()
        }
    }

    /// Under what numbers its samples are recorded; no thread's for 0.
    fn owner_of(&self, tid: i32) -> ChunkInfo {
        match self.is_beside() {
            true => self.owner_of_switches(tid),
            false => ChunkInfo {
                tid: tid.unsigned_abs(),
                ..self.owner()
            },
        }
    }

    /// Whether readers are to find out whose its samples are.
    const fn is_beside(&self) -> bool {
        self.sequence & FROM_SWITCHES != 0
    }

    pub(super) fn thread(&mut self, tid: i32) -> Option<&mut Thread> {
        self.threads.get_mut(&tid)
    }

    /// The CPU time of a thread counts from where its clock shows that much, ns.
    pub(super) fn count_from(&mut self, tid: i32, base_ns: u64) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.count_from(base_ns);
        }
    }

    /// Where that is, ns.
    pub(super) fn base_ns(&self, tid: i32) -> u64 {
        self.threads.get(&tid).map_or(0, Thread::base_ns)
    }

    /// CPU time of a thread that is known of, ns.
    pub(super) fn cpu_ns(&self, tid: i32) -> u64 {
        self.threads.get(&tid).map_or(0, Thread::cpu_ns)
    }

    /// Which of its threads has called exec, that goes on as the first of the process: the only one
    /// that had not ended before.
    pub(super) fn caller_of_exec(&self, tid: i32) -> i32 {
        let mut left = self.threads.keys().copied();
        match (left.next(), left.next()) {
            (Some(one), None) => one,
            _ => tid,
        }
    }

    pub(super) fn name(&mut self, tid: i32, name: Vec<u8>) {
        self.names.insert(tid, name);
    }

    pub(super) fn name_of(&self, tid: i32) -> Vec<u8> {
        self.names.get(&tid).cloned().unwrap_or_default()
    }

    pub(super) fn rename(&mut self, tid: i32, time_ns: u64, name: Vec<u8>, settings: &Settings) {
        if let Some(switches) = &mut self.switches {
            switches.rename(tid, time_ns, &name);
        }
        self.name(tid, name);
        if self.threads.get(&tid).is_some_and(Thread::is_used) {
            self.introduce(tid, time_ns, settings);
        }
    }

    /// Writes who a thread is.
    fn introduce(&mut self, tid: i32, time_ns: u64, settings: &Settings) {
        let name = self.name_of(tid);
        if let Some(thread) = self.threads.get_mut(&tid) {
            let record = wire_thread::Thread {
                time_ns,
                trigger: settings.trigger(),
                period_ns: settings.period_ns,
                periods: 1,
                refused: settings.refused,
                signal: 0,
                unarmed_cpu_ns: thread.start_ns(),
                name: &name,
            };
            thread.write(RecordKind::Thread, |out| record.encode(out));
        }
    }

    /// Code was mapped.
    pub(super) fn map(&mut self, images: &mut Images, time_ns: u64, mapping: &Mapping) {
        if processes::is_library(mapping) && !self.always_copied && !self.is_static(images) {
            self.unwinds_itself();
        }
        if self.nature != Nature::OwnUnwinding || self.switches.is_some() {
            self.add(images, time_ns, mapping);
        }
    }

    /// Whether its program is a static one. What such a program maps is for another one that it
    /// interprets, as valgrind does: the preload library does not run in the process then.
    fn is_static(&self, images: &mut Images) -> bool {
        let found = self.found.as_ref().map(|found| &found.executable);
        let found = found.filter(|path| !path.is_empty());
        // What the kernel mapped first at exec.
        let mut mapped = self.mapped.iter();
        let known = match found {
            Some(path) => mapped.find(|mapped| mapped.path == *path),
            None => mapped.next(),
        };
        let read = || {
            let mapping = Mapping {
                path: found?.clone(),
                ..Mapping::default()
            };
            images.get(self.pid, &mapping)
        };
        let image = known.map(|known| Arc::clone(&known.image)).or_else(read);
        image.is_some_and(|image| image.is_static)
    }

    fn add(&mut self, images: &mut Images, time_ns: u64, mapping: &Mapping) {
        let Some(image) = images.get(self.pid, mapping) else {
            return;
        };
        let same = self
            .mapped
            .iter()
            .filter(|mapped| mapped.path == mapping.path);
        let Some((range, bias)) = image.place(mapping, same.map(|mapped| &mapped.range)) else {
            return;
        };
        let again = |mapped: &Mapped| mapped.range == range && mapped.path == mapping.path;
        if !self.mapped.iter().any(again) {
            self.code.add(&mapping.path, range.clone(), bias, &image);
            self.mapped.push(Mapped {
                time_ns,
                range,
                bias,
                path: mapping.path.clone(),
                image,
            });
        }
    }

    /// It has the preload library: what we have of it is dropped, so that nothing counts twice.
    fn unwinds_itself(&mut self) {
        if let Nature::Unknown(_) = self.nature {
            self.ended.clear();
            let threads = self.threads.iter_mut();
            threads.for_each(|(_, thread)| thread.forget());
        }
        self.nature = Nature::OwnUnwinding;
    }

    /// Whether a sample is none of ours: the program unwinds itself.
    pub(super) fn passes_over(&mut self, tid: i32, period_ns: u64) -> bool {
        match &mut self.nature {
            Nature::Copied => {}
            Nature::OwnUnwinding => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.pass_over();
                }
                return true;
            }
            Nature::Unknown(sampled_ns) => {
                *sampled_ns += period_ns;
                if *sampled_ns > processes::LOADER_NS {
                    self.decide();
                }
            }
        }
        false
    }

    /// Notes what the CPU clock of a thread showed.
    pub(super) fn observe(&mut self, clock: &Clock) {
        let passed_over = self.nature == Nature::OwnUnwinding;
        if let Some(thread) = self.threads.get_mut(&clock.task.tid) {
            thread.observe(clock.cpu_ns, clock.now_ns);
            if passed_over {
                thread.pass_to(clock.cpu_ns);
            }
        }
    }

    /// It will not load the preload library any more.
    pub(super) fn decide(&mut self) {
        if let Nature::Unknown(_) = self.nature {
            self.nature = Nature::Copied;
        }
    }

    /// It is copied from now on, whatever was thought of it, and was found like that.
    pub(super) fn adopt(
        &mut self,
        images: &mut Images,
        time_ns: u64,
        adopted: Adopted,
        settings: &Settings,
    ) {
        self.nature = Nature::Copied;
        self.unwatched = adopted.unwatched;
        self.found = Some(adopted.found.identity);
        for mapping in adopted.found.mappings {
            match adopted.has_library {
                true => self.add(images, time_ns, &mapping),
                false => self.map(images, time_ns, &mapping),
            }
        }
        for FoundThread {
            tid,
            cpu_ns,
            runs,
            name,
        } in adopted.found.threads
        {
            let (base_ns, cpu_ns) = match settings.running {
                true => (cpu_ns, 0),
                false => (0, cpu_ns),
            };
            let presence = match runs || !settings.running {
                true => Presence::running(),
                false => Presence::asleep(time_ns),
            };
            let switches = self.switches.as_ref();
            match switches.is_some_and(|switches| switches.knows(tid)) {
                true => self.sample_thread(tid, time_ns, settings.period_ns, cpu_ns),
                false => self.begin_thread(tid, time_ns, settings.period_ns, cpu_ns, presence),
            }
            self.count_from(tid, base_ns);
            self.name(tid, name);
        }
        self.may_have_library = true;
    }

    /// Takes a sample of a thread.
    pub(super) fn push(&mut self, tid: i32, sample: Waiting, settings: &Settings) {
        let time_ns = sample.head.time_ns;
        if self.found.is_none() && self.asked.is_none() {
            self.asked = Some(processes::identity(self.pid));
        }
        if !self.threads.contains_key(&tid) {
            self.sample_thread(tid, time_ns, settings.period_ns, 0);
        }
        if self
            .threads
            .get(&tid)
            .is_some_and(|thread| !thread.is_used() && !sample.is_own)
        {
            self.introduce(tid, time_ns, settings);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.push(sample);
        }
    }

    /// Whether it ran before anybody looked.
    pub(super) const fn is_adopted(&self) -> bool {
        self.found.is_some()
    }

    /// Whether threads of it may unwind themselves beside being copied.
    pub(super) const fn may_have_library(&self) -> bool {
        self.may_have_library
    }

    /// Ends the chunks of all threads, so that what is known goes into the recording.
    pub(super) fn close_chunks(&mut self) {
        for thread in self.threads.values_mut() {
            thread.weigh();
            thread.close_chunk();
        }
    }

    pub(super) fn end_thread(&mut self, tid: i32, time_ns: u64, reason: ThreadEndReason) {
        if let Some(switches) = &mut self.switches {
            switches.end(tid, time_ns, reason);
        }
        let Some(mut thread) = self.threads.remove(&tid) else {
            return;
        };
        if self.nature == Nature::OwnUnwinding || !thread.is_used() {
            return;
        }
        match reason {
            ThreadEndReason::ThreadExit => thread.end(time_ns),
            // Its clock goes on.
            _ => thread.weigh(),
        }
        let end = ThreadEnd {
            tid: thread.number(),
            thread_key: thread.key(),
            time_ns,
            cpu_ns: thread.cpu_ns(),
            reason,
        };
        thread.write(RecordKind::ThreadEnd, |out| end.encode(out));
        thread.close_chunk();
        self.ended.extend(thread.take(&mut self.sequence));
    }

    /// Ends all its threads.
    pub(super) fn end(&mut self, time_ns: u64, reason: ThreadEndReason) {
        if reason == ThreadEndReason::Exec {
            self.decide();
        }
        let tids: Vec<i32> = self.threads.keys().copied().collect();
        for tid in tids {
            self.end_thread(tid, time_ns, reason);
        }
    }

    /// Whether no thread is left.
    pub(super) fn is_over(&self) -> bool {
        self.threads.is_empty()
    }
}
