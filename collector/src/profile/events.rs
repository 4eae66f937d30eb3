//! Events beside CPU time: a profile shows one event at a time ([`Profile::samples`]); the samples of the others are kept aside.

use super::{Profile, Sample};
use crate::report::duration;
use engine::wire::offer::CPU_EVENT;

/// Names of CPU time, the first of which is ours.
const CPU_TIME: [&str; 3] = ["cpu", "task-clock", "cpu-clock"];

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
        self.samples.append(&mut self.aside);
        let (shown, aside) = self
            .samples
            .iter()
            .partition(|sample| sample.event == event);
        (self.samples, self.aside) = (shown, aside);
        self.samples
            .sort_by_key(|sample| (sample.thread, sample.time_ns));
        self.shown_event = event;
        Ok(())
    }

    fn find_event(&self, name: &str) -> Result<u32, NoEvent> {
        if CPU_TIME.contains(&name) {
            return Ok(CPU_EVENT);
        }
        let sources = &self.recording.sources;
        let found = sources.iter().find(|source| source.name == name);
        found.map(|source| source.event).ok_or_else(|| {
            let names = sources.iter().map(|source| source.name.as_str());
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

    /// Samples of all events.
    pub fn all_samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().chain(&self.aside)
    }

    /// An amount of what is shown, in words: a time, or a count.
    #[must_use]
    pub fn amount(&self, amount: u64) -> String {
        if self.shown_event == CPU_EVENT {
            duration(amount)
        } else {
            amount.to_string()
        }
    }

    /// What the amounts shown are of, in words.
    #[must_use]
    pub fn subject(&self) -> String {
        if self.shown_event == CPU_EVENT {
            "CPU time".to_owned()
        } else {
            self.event_name(self.shown_event)
        }
    }
}
