//! Where processes are, said of their samples: where many are recorded, no one container is that of
//! a window.

use super::context;
use crate::processes::Stat;
use crate::profile::Profile;
use crate::recording::{Labels, LabelsId, ProcessId};
use std::collections::HashMap;
use std::sync::Arc;

/// A process: its number, and when it started in clock ticks since boot.
type Name = (u32, u64);

/// What is known of processes so far, of which some have ended meanwhile.
#[derive(Debug, Default)]
pub(super) struct Containers(HashMap<Name, Labels>);

impl Containers {
    /// Adds container, pod and cgroup of each sample's process to the labels of its regions; so,
    /// too, where CPU time is in no sample.
    pub(super) fn label(&mut self, profile: &mut Profile) {
        let recording = &mut profile.recording;
        let name = |id: ProcessId| {
            let process = &recording.processes[id.index()];
            (process.pid, process.start_ticks)
        };
        let all = (0..recording.processes.len()).map(ProcessId::next_of);
        let names: Vec<Name> = all.map(name).collect();
        self.0.retain(|known, _| names.contains(known));
        let mut sets: HashMap<(ProcessId, LabelsId), LabelsId> = HashMap::new();
        for sample in profile.samples.iter_mut().chain(&mut profile.remainders) {
            let process = recording.threads[sample.thread.index()].process;
            let before = sample.labels;
            sample.labels = *sets.entry((process, before)).or_insert_with(|| {
                let own = self.of(names[process.index()]);
                match own.is_empty() {
                    true => before,
                    false => recording.labels.with(before, own),
                }
            });
        }
    }

    fn of(&mut self, name: Name) -> &Labels {
        self.0.entry(name).or_insert_with(|| {
            let found = context::whereabouts(&name.0.to_string());
            let found = found.map(|(key, value)| (Arc::from(key), Arc::from(value)));
            let found: Labels = found.collect();
            // Another one may have its number by now.
            let is_its = |stat: Stat| stat.start_ticks() == Some(name.1);
            match Stat::read(name.0).is_some_and(is_its) {
                true => found,
                false => Labels::new(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::{Reason, Row};
    use crate::profile::Sample;
    use crate::recording::example::stackless;
    use crate::recording::{Process, RawSample, Recording, Thread, ThreadId, Totals};
    use crate::symbolize::Places;

    #[test]
    fn where_a_process_is_stands_beside_what_it_says_itself() {
        let pair = |(key, value): (&str, &str)| (Arc::from(key), Arc::from(value));
        let mut recording = Recording::default();
        for pid in [0, 7, 8] {
            let at = recording.processes.len();
            recording.processes.push(Process {
                pid,
                start_ticks: 5,
                ..Process::default()
            });
            recording.threads.push(Thread {
                process: ProcessId::next_of(at),
                tid: pid,
                key: 0,
                name: String::new(),
                armings: Vec::new(),
                end: None,
                totals: Totals::default(),
                late_cpu_ns: 0,
            });
        }
        let own = [pair(("container.id", "mine")), pair(("route", "/a"))];
        let labelled = recording.labels.with(LabelsId::NONE, &own);
        let sample = |thread: usize, labels| RawSample {
            labels,
            ..stackless(ThreadId::next_of(thread), 1)
        };
        recording.samples = vec![
            sample(1, LabelsId::NONE),
            sample(1, labelled),
            sample(1, LabelsId::UNKNOWN),
            sample(1, LabelsId::NONE),
            sample(2, LabelsId::NONE),
        ];
        let rows = [1, 2].map(|at| Row {
            reason: Reason::End,
            process: Some(ProcessId::next_of(at)),
            thread: None,
            ns: recording.period_ns(ThreadId::next_of(at)),
        });
        let mut profile = Profile::of_part(recording, &Places::default(), &rows);
        let mut containers = Containers::default();
        let known = [("container.id", "c"), ("k8s.pod.uid", "p")].map(pair);
        containers.0.insert((7, 5), known.to_vec());
        containers.0.insert((9, 5), known.to_vec());
        containers.label(&mut profile);
        let said = |sample: &Sample| {
            let all = profile.recording.labels.get(sample.labels).iter();
            all.map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
        };
        let labels: Vec<_> = profile.samples.iter().map(said).collect();
        let own = ["container.id=c", "k8s.pod.uid=p"];
        assert_eq!(labels[0], own);
        assert_eq!(
            labels[1],
            ["container.id=mine", "k8s.pod.uid=p", "route=/a"]
        );
        assert_eq!((&labels[2], &labels[3]), (&labels[0], &labels[0]));
        let remainders: Vec<_> = profile.remainders.iter().map(said).collect();
        assert_eq!(remainders, [own.to_vec(), Vec::new()]);
        // It began at another time than whoever has that number, or has ended.
        assert!(labels[4].is_empty());
        assert!(
            !containers.0.contains_key(&(9, 5)),
            "it is not there any more"
        );
    }
}
