//! Profiles against the truth: programs whose stacks and whose split of time are known beforehand
//! (`examples/`).

use collector::profile::{Profile, Sample};
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, example, status};
use rsunwind_tests::statistics::{judge, stands_for, stolen_ns};
use std::collections::BTreeMap;

fn profile(options: &[&str], program: &str, argument: &str) -> Profile {
    let bench = Bench::new();
    let mut command = bench.record(options);
    assert_eq!(status(command.arg(example(program)).arg(argument)), 0);
    Profile::new(bench.recording(), &Default::default())
}

/// Names on a stack, from the leaf.
fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    profile
        .walk(sample.stack)
        .map(|frame| last_part(&profile.function(frame).name))
        .collect()
}

fn last_part(name: &str) -> &str {
    name.rsplit("::")
        .find(|part| !part.starts_with('h') || part.len() != 17)
        .unwrap_or(name)
}

/// At 2 kHz.
const PERIOD_NS: f64 = 500_000.0;

#[test]
fn shares_are_within_two_points_of_the_truth() {
    judge(|| {
        let profile = profile(&["-F", "2k"], "split", "3000");
        let mut weights = BTreeMap::new();
        let mut all = 0;
        for sample in &profile.samples {
            for name in names(&profile, sample) {
                *weights.entry(name).or_insert(0) += sample.weight;
            }
            all += sample.weight;
        }
        assert!(all >= 5_000, "{all} periods are too few to judge by");
        // What was stolen may be in any of them.
        let off = 2.0 + stolen_ns() * 100.0 / (all as f64 * PERIOD_NS);
        for (function, truth) in [
            ("half", 50.0),
            ("third", 30.0),
            ("fifth", 20.0),
            ("round", 100.0),
        ] {
            let share = weights[function] as f64 * 100.0 / all as f64;
            assert_measured!(
                (share - truth).abs() < off,
                "{function}: {share:.2} % measured, {truth} % true"
            );
        }
    });
}

/// Of 64 threads on a few processors some lose theirs in the middle of the handler, and have it
/// again when all the others have had it.
#[test]
fn time_in_which_others_have_the_processor_is_no_cost_of_the_handler() {
    for trigger in ["perf", "timer"] {
        let profile = profile(&["-F", "1k", "--trigger", trigger], "crew", "64");
        let threads = profile.recording.threads.iter();
        let (handler_ns, cpu_ns) = threads.fold((0, 0), |(handler_ns, cpu_ns), thread| {
            let used_ns = thread.end.expect("it ended").cpu_ns;
            (handler_ns + thread.totals.handler_ns, cpu_ns + used_ns)
        });
        assert!(handler_ns > 0, "{trigger}");
        assert!(
            handler_ns * 5 < cpu_ns,
            "{trigger}: {handler_ns} ns in the handler of {cpu_ns}"
        );
    }
}

#[test]
fn sixty_four_threads_lose_nothing_and_each_gets_its_weight() {
    judge(|| {
        let profile = profile(&["-F", "1k"], "crew", "64");
        let recording = &profile.recording;
        let members = recording
            .threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| thread.name.starts_with("member-"));
        let mut count = 0;
        for (index, thread) in members {
            count += 1;
            assert_eq!(
                (thread.totals.lost_samples, thread.totals.lost_weight),
                (0, 0),
                "{}",
                thread.name
            );
            let period = thread.armings[0].period_ns as f64;
            let used = thread
                .end
                .expect("it ended")
                .cpu_ns
                .saturating_sub(thread.unarmed_cpu_ns()) as f64;
            let delivered = thread.totals.weight as f64 * period;
            // Two per cent, or the period that no rate can divide.
            let tolerance = (used * 0.02).max(period);
            assert_measured!(
                stands_for(delivered, used, tolerance),
                "{}: {delivered} of {used} ns delivered",
                thread.name
            );
            let own = profile
                .samples
                .iter()
                .filter(|sample| sample.thread.index() == index);
            for sample in own.filter(|sample| sample.weight > 0) {
                let names = names(&profile, sample);
                if names.contains(&"task") {
                    let task = names.iter().position(|name| *name == "task").unwrap_or(0);
                    assert_eq!(
                        names.get(task..task + 3),
                        Some(&["task", "shift", "member"][..]),
                        "{names:?}"
                    );
                }
            }
        }
        assert_eq!(count, 64);
        assert_eq!(recording.chunkless_samples, 0);
        let weight = |keep: &dyn Fn(&Sample) -> bool| {
            profile
                .samples
                .iter()
                .filter(|s| keep(s))
                .map(|s| s.weight)
                .sum::<u64>()
        };
        let (complete, all) = (weight(&|sample| sample.complete), weight(&|_| true));
        assert_measured!(complete * 100 >= all * 99, "{complete} of {all} complete");
    });
}
