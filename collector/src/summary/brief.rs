//! The summary in three lines: what was recorded, where most of it went, and what is wrong with it,
//! with the cure.

use super::{complaints, hints, threads, why_empty};
use crate::charge::{Ledger, Reason};
use crate::numbers::{duration, plural, share};
use crate::profile::{Names, Profile};
use engine::wire::offer::CPU_EVENT;
use engine::wire::source::{OFF_CPU, WALL};

/// Functions that are named.
const NAMED: usize = 3;
/// Less than one part in so many is not worth a word.
const WORTH: u64 = 100;

/// What was recorded.
pub(super) fn what(profile: &Profile) -> String {
    let recording = &profile.recording;
    let mut parts = vec![match profile.samples.len() as u64 {
        0 => "no samples of CPU time".to_owned(),
        count => format!(
            "{} of CPU time in {}",
            duration(sampled_ns(profile)),
            plural(count, "sample", "samples")
        ),
    }];
    for event in profile.other_events().into_iter().filter(|it| *it != WALL) {
        let samples = profile.all_samples().filter(|it| it.event == event);
        let sum = samples.fold(0u64, |sum, it| sum.saturating_add(it.weight));
        let amount = profile.amount_of(event, sum);
        parts.push(match event {
            OFF_CPU => format!("{amount} off the CPU"),
            _ => format!("{amount} of {}", profile.event_name(event)),
        });
    }
    parts.push(plural(
        recording.processes.len() as u64,
        "process",
        "processes",
    ));
    parts.push(plural(recording.threads.len() as u64, "thread", "threads"));
    parts.join(", ")
}

fn sampled_ns(profile: &Profile) -> u64 {
    let times = profile.samples.iter().map(|sample| profile.time_ns(sample));
    times.fold(0, u64::saturating_add)
}

/// In which functions most of it was.
pub(super) fn most(profile: &Profile) -> String {
    let whole = profile.whole();
    let times = profile.busiest(Names::Short);
    let worth = times
        .iter()
        .filter(|(_, time)| time.saturating_mul(WORTH) >= whole);
    let named: Vec<_> = worth
        .take(NAMED)
        .map(|(id, time)| {
            let function = &profile.functions[id.index()];
            let name = function.called(Names::Short);
            match profile.image_name(function) {
                "-" => format!("{} {name}", share(*time, whole)),
                image => format!("{} {name} ({image})", share(*time, whole)),
            }
        })
        .collect();
    match profile.samples.is_empty() {
        true => match most_waits(profile) {
            Some(waits) => format!("no samples of CPU time; {waits}"),
            None => why_empty(profile),
        },
        false => {
            let (named, own) = (named.join(", "), most_own(profile));
            let waits = most_waits(profile).map_or_else(String::new, |waits| format!("; {waits}"));
            format!("most of it in {named}{own}{waits}")
        }
    }
}

/// In which of the program's own functions it waited most, where that was recorded.
fn most_waits(profile: &Profile) -> Option<String> {
    let waits = profile.waits(Names::Short);
    let whole = waits
        .iter()
        .fold(0u64, |sum, (_, time)| sum.saturating_add(*time));
    let named: Vec<_> = waits
        .iter()
        .take(NAMED)
        .map(|(id, time)| {
            let name = profile.functions[id.index()].called(Names::Short);
            format!("{} {name}", share(*time, whole))
        })
        .collect();
    let named = Some(named).filter(|named| !named.is_empty())?;
    let named = named.join(", ");
    Some(format!(
        "most of its waiting in {named} (report --event off-cpu)"
    ))
}

/// For which function of the program's own most of it was, unless that is what most of it was in.
fn most_own(profile: &Profile) -> String {
    let own = profile.own_functions(Names::Short);
    own.first().map_or_else(String::new, |(id, amount)| {
        let name = profile.functions[id.index()].called(Names::Short);
        let part = share(*amount, profile.whole());
        format!("; of its own functions most for {name}: {part}")
    })
}

/// What is wrong, the gravest first, each with its cure.
pub(super) fn problems(profile: &Profile) -> Vec<String> {
    debug_assert_eq!(profile.shown_event, CPU_EVENT);
    let mut out = Vec::new();
    let ledger = Ledger::of(&profile.recording);
    let accounts = threads::accounts(profile);
    let lost = accounts.iter().map(|account| account.lost_weight);
    let lost = lost.fold(profile.recording.chunkless_weight, u64::saturating_add);
    let samples = profile.samples.iter().map(|sample| sample.weight);
    let taken = samples.fold(lost, u64::saturating_add);
    if lost > 0 && lost.saturating_mul(WORTH) >= taken {
        let part = share(lost, taken);
        out.push(format!(
            "{part} of the samples were lost for want of room: lower the rate (-F), raise --size, or see whether /dev/shm is full or ulimit -f low"
        ));
    }
    let unsampled = ledger.of_reason(Reason::NotSampled);
    if unsampled > 0 && unsampled.saturating_mul(WORTH) >= ledger.total_ns() {
        let time = duration(unsampled);
        out.push(format!(
            "{time} of CPU time was not sampled at all: rsunwind record -v says of which processes, and why"
        ));
    }
    out.extend(complaints::wrong(profile));
    out.extend(threads::refusals(profile));
    let is_whole = |stop| stop == engine::wire::sample::StopReason::Root;
    let cut = profile
        .samples
        .iter()
        .filter(|it| !it.complete && !is_whole(it.stop));
    let cut = cut.fold(0u64, |sum, sample| sum.saturating_add(sample.weight));
    if cut.saturating_mul(WORTH) >= taken && cut > 0 {
        let part = share(cut, taken);
        out.push(format!(
            "{part} of the stacks do not reach to where their thread began: rsunwind record -v says where they end"
        ));
    }
    out.extend(hints::all(profile));
    out.extend(complaints::noted(profile));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;

    #[test]
    fn three_lines_say_what_where_and_what_is_wrong() {
        let mut profile = example();
        assert_eq!(
            what(&profile),
            "7.00 ms of CPU time in 4 samples, 1 process, 2 threads"
        );
        let most = most(&profile);
        assert!(
            most.starts_with("most of it in ") && most.contains(" % "),
            "{most}"
        );
        let said = problems(&profile);
        assert!(
            said.iter()
                .any(|it| it.contains("perf_event_paranoid at 1 or below")),
            "{said:?}"
        );
        assert!(
            said.iter().any(|it| it.contains("42.9 % of the stacks")),
            "{said:?}"
        );
        assert!(!said[0].contains("lost"), "{said:?}");
        profile.recording.threads[1].totals.lost_weight = 93;
        assert!(
            problems(&profile)[0].starts_with("93.0 % of the samples were lost"),
            "{said:?}"
        );
    }
}
