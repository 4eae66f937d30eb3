//! `-e`: events that are sampled beside CPU time. Their names are found here, and each is tried
//! before the program starts; the programs are told types and numbers only, in the setting `events`
//! (`librsunwind`'s `config::asked`).
//!
//! `task-clock` and `cpu-clock` are CPU time itself, which is always sampled: they add nothing.

mod names;
mod probe;

use super::error::Error;
use engine::wire::offer::MAX_EVENTS;
use names::Named;

/// Most events beside CPU time.
const MOST: usize = MAX_EVENTS - 1;

/// An event to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// As the user named it, without the period.
    pub name: String,
    /// What it is to the kernel.
    pub named: Named,
    /// Only in user mode.
    pub user_only: bool,
    /// A sample every so many; `None` for so many samples a second as CPU time has.
    pub period: Option<u64>,
}

impl Event {
    /// Every how many units of its own a sample is taken, or how often a second, and which of the
    /// two.
    #[must_use]
    pub fn period_or_rate(&self, hertz: u64) -> (u64, bool) {
        match self.period {
            Some(period) => (period, false),
            None => (hertz.max(1), true),
        }
    }

    fn setting(&self, hertz: u64) -> String {
        let (period, is_rate) = self.period_or_rate(hertz);
        let flags = [
            (self.user_only, "u"),
            (self.named.signals, "s"),
            (is_rate, "f"),
        ];
        let flags = flags.iter().filter(|(on, _)| *on).map(|(_, flag)| *flag);
        let Named { kind, config, .. } = self.named;
        format!("{kind}.{config}.{period}.{}", flags.collect::<String>())
    }
}

/// The events that `-e` names, each tried; without those that are CPU time.
///
/// # Errors
/// [`Error::Event`] with the remedy.
pub fn find(lists: &[String], hertz: u64) -> Result<Vec<Event>, Error> {
    let mut events: Vec<Event> = Vec::new();
    for list in lists {
        for text in names::split(list) {
            let event = names::parse(text).map_err(Error::Event)?;
            let is_new = events.iter().all(|known| known.name != event.name);
            if is_new && !event.named.is_cpu_time() {
                probe::probe(&event, hertz).map_err(Error::Event)?;
                events.push(event);
            }
        }
    }
    if events.len() > MOST {
        return Err(Error::Event(format!(
            "{} events are too many: at most {MOST} can be sampled beside CPU time",
            events.len()
        )));
    }
    Ok(events)
}

/// Tries what time off the CPU is recorded with: context switches, which happen in the kernel.
///
/// # Errors
/// [`Error::Event`] with the remedy.
pub fn try_off_cpu() -> Result<(), Error> {
    let switches = names::parse("context-switches").map_err(Error::Event)?;
    let event = Event {
        name: "time off the CPU".into(),
        ..switches
    };
    probe::probe(&event, 1).map_err(Error::Event)
}

/// The setting that tells programs of them, with its comma; empty for none.
#[must_use]
pub fn setting(events: &[Event], hertz: u64) -> String {
    if events.is_empty() {
        return String::new();
    }
    let all: Vec<String> = events.iter().map(|event| event.setting(hertz)).collect();
    format!("events={},", all.join("+"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_adds_nothing_and_doubles_are_one() {
        let lists = [
            "task-clock,page-faults".into(),
            "cpu-clock,page-faults".into(),
        ];
        let events = find(&lists, 999).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(setting(&events, 999), "events=1.2.999.sf,");
        assert_eq!(setting(&[], 999), "");
    }

    #[test]
    fn there_are_at_most_seven() {
        let many = "page-faults,faults:u,minor-faults,major-faults,minor-faults:u,major-faults:u,page-faults:u,alignment-faults:u";
        let error = find(&[many.into()], 999).unwrap_err().to_string();
        assert!(error.contains("at most 7"), "{error}");
    }
}
