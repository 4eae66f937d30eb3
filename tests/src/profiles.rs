//! Recordings of a bench read as profiles, and what is asked of those.

use crate::command::Bench;
use collector::correlate;
use collector::profile::{Profile, Sample};

/// Reads a recording of the bench.
///
/// # Panics
/// If it cannot be read.
#[must_use]
#[track_caller]
pub fn profile(bench: &Bench, file: &str) -> Profile {
    let read = correlate::read(&[bench.path(file)]);
    Profile::new(read.expect("a recording"), &Default::default())
}

/// The functions on a sample's stack, from the innermost on.
#[must_use]
pub fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let frames = profile.walk(sample.stack);
    frames.map(|frame| &*profile.function(frame).name).collect()
}

/// Weight of the samples that are meant, periods.
pub fn weight(profile: &Profile, keep: impl Fn(&Sample) -> bool) -> u64 {
    let kept = profile.samples.iter().filter(|sample| keep(sample));
    kept.map(|sample| sample.weight).sum()
}

/// CPU time that those samples of a thread that are meant stand for, ns.
pub fn delivered(profile: &Profile, tid: u32, keep: impl Fn(&Sample) -> bool) -> u64 {
    let threads = profile.recording.threads.iter().enumerate();
    let of_it = threads.filter(|(_, thread)| thread.tid == tid);
    let ns = of_it.map(|(index, thread)| {
        let own = weight(profile, |s| s.thread.index() == index && keep(s));
        // One that was never sampled does not say.
        own * thread.armings.first().map_or(0, |arming| arming.period_ns)
    });
    ns.sum()
}
