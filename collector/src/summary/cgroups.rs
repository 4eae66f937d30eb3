//! Which containers and other cgroups the CPU time was of, where processes of several were seen.

use super::line;
use crate::intern::HashMap;
use crate::numbers::share;
use crate::profile::Profile;

/// So many are named at most.
const NAMED: usize = 5;

pub(super) fn shares(out: &mut String, profile: &Profile) {
    let mut sums: HashMap<(&str, &str), u64> = HashMap::default();
    for sample in &profile.samples {
        let process = profile.process_of(sample.thread);
        let group = profile.recording.processes[process.index()].group();
        let sum = sums.entry(group).or_default();
        *sum = sum.saturating_add(profile.time_ns(sample));
    }
    if sums.len() < 2 {
        return;
    }
    let whole = sums
        .values()
        .fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let named = sums.iter().take(NAMED);
    let named = named.map(|((name, _), ns)| format!("{} {name}", share(*ns, whole)));
    let mut text = named.collect::<Vec<_>>().join(", ");
    if let Some(others) = sums.len().checked_sub(NAMED).filter(|others| *others > 0) {
        text.push_str(&format!(" and {others} more (report --by cgroup)"));
    }
    line(out, "cgroups", &text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;
    use crate::recording::{Process, ProcessId};

    #[test]
    fn containers_are_named_where_there_are_several() {
        let mut profile = example();
        let said = |profile: &Profile| {
            let mut out = String::new();
            shares(&mut out, profile);
            out
        };
        profile.recording.processes[0].cgroup = "/system.slice/prog.service".to_owned();
        assert_eq!(said(&profile), "");
        profile.recording.processes.push(Process {
            cgroup: "/docker/0123".to_owned(),
            container: "web".to_owned(),
            ..Process::default()
        });
        profile.recording.threads[1].process = ProcessId::new(1);
        let said = said(&profile);
        assert!(
            said.contains("cgroups") && said.contains(" % web"),
            "{said}"
        );
        assert!(said.contains(" % prog.service"), "{said}");
    }
}
