//! Events beside CPU time: a profile shows one event at a time ([`Profile::samples`]); the samples
//! of the others are kept aside. Wall-clock time is one that has no samples of its own: it is CPU
//! time and time off the CPU, both in ns.

use super::{Profile, Sample};
use crate::numbers::duration;
use engine::wire::offer::CPU_EVENT;
use engine::wire::source::{OFF_CPU, WALL};

/// Names of CPU time, the first of which is ours.
const CPU_TIME: [&str; 3] = ["cpu", "task-clock", "cpu-clock"];
/// The name of time off the CPU.
const OFF_THE_CPU: &str = "off-cpu";
/// The name of wall-clock time.
const WALL_CLOCK: &str = "wall";

/// No such event was recorded.
#[derive(Debug, thiserror::Error)]
#[error("no event {wanted:?} was recorded; there are: {there}")]
pub struct NoEvent {
    wanted: String,
    there: String,
}

impl Profile {
    /// Shows another event: its samples, each weighed with what the event counted.
    ///
    /// # Errors
    /// [`NoEvent`].
    pub fn show_event(&mut self, name: &str) -> Result<(), NoEvent> {
        let event = self.find_event(name)?;
        self.show(event);
        Ok(())
    }

    /// Shows what the recording was made to show: wall-clock time if that was asked for, else CPU
    /// time.
    pub fn show_usual(&mut self) {
        let sources = &self.recording.sources;
        let wall = sources.iter().any(|source| source.event == WALL);
        self.show(if wall { WALL } else { CPU_EVENT });
    }

    /// Shows an event, by number.
    pub fn show(&mut self, event: u32) {
        if event == self.shown_event {
            self.in_order();
            return;
        }
        self.samples.retain(|sample| sample.event != WALL);
        self.samples.append(&mut self.aside);
        if event == WALL {
            let times = self.samples.iter().filter(|sample| is_time(sample.event));
            let wall = times.map(|sample| Sample {
                event: WALL,
                weight: self.time_ns(sample),
                ..*sample
            });
            let wall = wall.collect();
            self.aside = std::mem::replace(&mut self.samples, wall);
        } else {
            let (shown, aside) = self
                .samples
                .iter()
                .partition(|sample| sample.event == event);
            (self.samples, self.aside) = (shown, aside);
        }
        self.shown_event = event;
        self.in_order();
    }

    fn in_order(&mut self) {
        let samples = &mut self.samples;
        samples.sort_by_key(|sample| (sample.thread, sample.time_ns));
    }

    fn find_event(&self, name: &str) -> Result<u32, NoEvent> {
        if CPU_TIME.contains(&name) {
            return Ok(CPU_EVENT);
        }
        let sources = &self.recording.sources;
        // These two are known by their numbers, should the collector not have lived to name them;
        // and wall-clock time is there wherever time off the CPU is.
        let all = self.other_events();
        let off_cpu = all.contains(&OFF_CPU);
        let wall = off_cpu && !all.contains(&WALL);
        match name {
            OFF_THE_CPU if off_cpu => return Ok(OFF_CPU),
            WALL_CLOCK if off_cpu => return Ok(WALL),
            _ => {}
        }
        let found = sources.iter().find(|source| source.name == name);
        found.map(|source| source.event).ok_or_else(|| {
            let names = sources.iter().map(|source| source.name.as_str());
            let names = names.chain(wall.then_some(WALL_CLOCK));
            let all: Vec<&str> = std::iter::once(CPU_TIME[0]).chain(names).collect();
            NoEvent {
                wanted: name.to_owned(),
                there: all.join(", "),
            }
        })
    }

    /// The name of an event, by number.
    #[must_use]
    pub fn event_name(&self, event: u32) -> String {
        let mut sources = self.recording.sources.iter();
        match sources.find(|source| source.event == event) {
            _ if event == CPU_EVENT => CPU_TIME[0].to_owned(),
            Some(source) => source.name.clone(),
            None if event == OFF_CPU => OFF_THE_CPU.to_owned(),
            None if event == WALL => WALL_CLOCK.to_owned(),
            // Its name is in the collector's last records, which it did not live to write.
            None => format!("event-{event}"),
        }
    }

    /// The numbers of the events that have samples or names, without CPU time.
    #[must_use]
    pub fn other_events(&self) -> Vec<u32> {
        let named = self.recording.sources.iter().map(|source| source.event);
        let sampled = self.all_samples().map(|sample| sample.event);
        let mut events: Vec<u32> = named.chain(sampled).filter(|e| *e != CPU_EVENT).collect();
        events.sort_unstable();
        events.dedup();
        events
    }

    /// Samples of all events that have some of their own.
    pub fn all_samples(&self) -> impl Iterator<Item = &Sample> {
        let shown = self.samples.iter().filter(|sample| sample.event != WALL);
        shown.chain(&self.aside)
    }

    /// An amount of what is shown, in words: a time, or a count.
    #[must_use]
    pub fn amount(&self, amount: u64) -> String {
        self.amount_of(self.shown_event, amount)
    }

    /// Likewise of an event.
    #[must_use]
    pub fn amount_of(&self, event: u32, amount: u64) -> String {
        if is_time(event) {
            duration(amount)
        } else {
            amount.to_string()
        }
    }

    /// What the amounts shown are of, in words.
    #[must_use]
    pub fn subject(&self) -> String {
        match self.shown_event {
            CPU_EVENT => "CPU time".to_owned(),
            OFF_CPU => "time off the CPU".to_owned(),
            WALL => "wall-clock time".to_owned(),
            event => self.event_name(event),
        }
    }
}

/// Whether what an event counts is time (in sampling periods for CPU time, else in ns).
#[must_use]
pub const fn is_time(event: u32) -> bool {
    matches!(event, CPU_EVENT | OFF_CPU | WALL)
}
