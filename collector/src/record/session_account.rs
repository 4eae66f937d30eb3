//! The collector's own account of a recording: the names of its events, and its last record.

use super::End;
use super::args::Args;
use super::drain::Drain;
use super::event_cost;
use super::events::Event;
use super::load_cost::{LoadCost, Preload};
use super::price::Price;
use super::program::Charged;
use crate::clock;
use crate::perf_clock;
use engine::wire::clocks::Clocks;
use engine::wire::record::RecordKind;
use engine::wire::session::Session as SessionRecord;
use engine::wire::source::{OFF_CPU, Source, WALL};
use nix::sys::utsname::uname;
use nix::unistd::{Pid, SysconfVar, sysconf};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Most bytes kept of the command line.
const LONGEST_COMMAND: usize = 32 << 10;
/// The wait status of a program that goes on (`WIFCONTINUED`), where the recording ended before it.
const STILL_RUNNING: u32 = 0xffff;

/// What is known of the whole recording, for its last record.
#[derive(Debug)]
pub struct Account {
    start_ns: u64,
    /// By then, since boot.
    stolen_ns: u64,
    asked_millihertz: u64,
    period_ns: u64,
    command: Vec<u8>,
    events: Vec<Event>,
    /// Numbers and names of what is recorded beside those.
    times: Vec<(u32, &'static str)>,
    clocks: Clocks,
    /// Whether programs may have had perf events that raise signals.
    perf: bool,
    /// Whether programs may have had events that tell of those that they start.
    listens: bool,
}

impl Account {
    /// At the start, of a command or of processes with that one.
    #[must_use]
    pub fn open(args: &Args, command: &[OsString], events: Vec<Event>) -> Self {
        let command = command
            .iter()
            .flat_map(|argument| [argument.as_bytes(), b"\0"])
            .flatten()
            .copied();
        Self {
            start_ns: clock::monotonic_ns(),
            stolen_ns: clock::stolen_ns(),
            clocks: perf_clock::read(),
            perf: event_cost::is_known(args),
            listens: args.notices_programs(),
            asked_millihertz: args.rate.millihertz,
            period_ns: args.rate.period_ns(),
            command: command.take(LONGEST_COMMAND).collect(),
            events,
            times: [
                (args.records_off_cpu(), (OFF_CPU, "off-cpu")),
                (args.wall, (WALL, "wall")),
            ]
            .into_iter()
            .filter_map(|(asked, time)| asked.then_some(time))
            .collect(),
        }
    }

    /// At the end: writes it, and finishes the recording. `charged` is what the kernel charged the
    /// program, `preload` what that was started with, if anything. All that the collector started
    /// must have ended: it measures.
    ///
    /// # Errors
    /// As write.
    pub fn close(
        &self,
        drain: &mut Drain,
        pid: Pid,
        end: End,
        charged: Charged,
        preload: Option<Preload<'_>>,
    ) -> io::Result<()> {
        for (event, number) in self.events.iter().zip(1u32..) {
            let missing = drain.rings().missing_of(number);
            let source = Source {
                event: number,
                kind: event.named.kind,
                config: event.named.config,
                period: event.period.unwrap_or(0),
                name: event.name.as_bytes(),
                lost: missing.lost,
                rest: missing.rest,
            };
            drain
                .writer()
                .own((0, 0), RecordKind::Source, |out| source.encode(out))?;
        }
        for (event, name) in &self.times {
            let source = Source {
                event: *event,
                name: name.as_bytes(),
                ..Source::default()
            };
            drain
                .writer()
                .own((0, 0), RecordKind::Source, |out| source.encode(out))?;
        }
        for clocks in [self.clocks, perf_clock::read()] {
            drain
                .writer()
                .own((0, 0), RecordKind::Clocks, |out| clocks.encode(out))?;
        }
        let period_ns = drain.period_ns().unwrap_or(self.period_ns);
        let price = match preload {
            Some(_) if self.perf => {
                // Where somebody has said what samples may take, they are some of these apart.
                let apart_ns = period_ns.max(self.period_ns);
                Price::measured(apart_ns, charged.switches, self.listens)
            }
            _ => Price::default(),
        };
        let loading = preload.map_or_else(LoadCost::default, |preload| {
            LoadCost::measured(drain.runs(), &preload, self.listens)
        });
        let system = uname().ok();
        let text =
            |field: Option<&OsStr>| field.map_or(Vec::new(), |field| field.as_bytes().to_vec());
        let (kernel, host) = (
            text(system.as_ref().map(|s| s.release())),
            text(system.as_ref().map(|s| s.nodename())),
        );
        let processors = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
        let record = SessionRecord {
            start_ns: self.start_ns,
            end_ns: end.at_ns,
            realtime_offset_ns: clock::realtime_offset_ns(),
            wait_status: end.status.map_or(STILL_RUNNING, |status| status.0 as u32),
            processors: processors
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(0),
            asked_millihertz: self.asked_millihertz,
            period_ns,
            kernel: &kernel,
            host: &host,
            command: &self.command,
            pid: pid.as_raw().cast_unsigned(),
            charged_ns: charged.cpu_ns,
            event_ns: price.event_ns,
            signal_ns: price.signal_ns,
            switches: charged.switches,
            switch_ns: price.switch_ns,
            thread_ns: price.thread_ns,
            collector_ns: clock::process_cpu_ns().saturating_add(loading.tried_ns),
            // A program's first thread is one of the threads.
            load_ns: loading.load_ns.saturating_sub(price.thread_ns),
            stolen_ns: clock::stolen_ns().saturating_sub(self.stolen_ns),
        };
        drain
            .writer()
            .own((0, 0), RecordKind::Session, |out| record.encode(out))?;
        drain.writer().finish()
    }
}
