//! Leaves only the samples of some processes and threads.

use super::Profile;
use crate::recording::ThreadId;

/// Which samples to keep; each list that is empty keeps all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Processes by pid, or by name.
    pub processes: Vec<String>,
    /// Threads by tid, or by name.
    pub threads: Vec<String>,
}

/// Nothing would be left.
#[derive(Debug, thiserror::Error)]
#[error("no {what} is named {wanted} or has that number; there are: {there}")]
pub struct FilterError {
    what: &'static str,
    wanted: String,
    there: String,
}

impl Filter {
    /// Drops the samples of all other threads.
    ///
    /// # Errors
    /// [`FilterError`] if something asked for is not there.
    pub fn apply(&self, profile: &mut Profile) -> Result<(), FilterError> {
        let recording = &profile.recording;
        let processes = recording.processes.iter();
        let processes = processes.map(|p| (p.pid, p.name())).collect::<Vec<_>>();
        check("process", &self.processes, &processes)?;
        let threads = recording.threads.iter();
        let threads = threads.map(|t| (t.tid, &*t.name)).collect::<Vec<_>>();
        check("thread", &self.threads, &threads)?;
        let keep = |id: ThreadId| {
            let process = recording.threads[id.index()].process;
            matches(&self.threads, threads[id.index()])
                && matches(&self.processes, processes[process.index()])
        };
        profile.samples.retain(|sample| keep(sample.thread));
        profile.aside.retain(|sample| keep(sample.thread));
        profile.remainders.retain(|sample| keep(sample.thread));
        Ok(())
    }
}

fn matches(wanted: &[String], (number, name): (u32, &str)) -> bool {
    let same = |wanted: &String| wanted == name || wanted.parse() == Ok(number);
    wanted.is_empty() || wanted.iter().any(same)
}

fn check(what: &'static str, wanted: &[String], there: &[(u32, &str)]) -> Result<(), FilterError> {
    for one in wanted {
        if !there
            .iter()
            .any(|there| matches(std::slice::from_ref(one), *there))
        {
            let mut names: Vec<String> = there
                .iter()
                .map(|(number, name)| format!("{name} ({number})"))
                .collect();
            names.dedup();
            let more = names.len().saturating_sub(20);
            names.truncate(20);
            if more > 0 {
                names.push(format!("{more} more"));
            }
            return Err(FilterError {
                what,
                wanted: one.clone(),
                there: names.join(", "),
            });
        }
    }
    Ok(())
}
