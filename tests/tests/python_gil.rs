//! Who has Python's GIL and who waits for it, by programs whose threads are known
//! to do either.

use collector::profile::{Gil, Profile};
use collector::symbolize::Places;
use engine::wire::offer::CPU_EVENT;
use engine::wire::source::OFF_CPU;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::pythons::{script, three};
use rsunwind_tests::statistics::{judge, share};

#[test]
fn who_has_the_gil_and_who_waits_for_it_is_known() {
    judge(|| {
        for (minor, python) in three() {
            let bench = Bench::new();
            let mut command = bench.record(&["-F", "1000", "--off-cpu"]);
            command.arg(&python).arg("-S").arg(script("features.py"));
            let result = output(command.arg("gil"));
            assert!(result.status.success(), "{}", text(&result.stderr));
            let summary = text(&result.stderr);
            let said = ["GIL  held in", "waited for in"];
            assert!(said.iter().all(|said| summary.contains(said)), "{summary}");
            let profile = Profile::new(bench.recording(), &Places::default());
            let sum = |event: u32, function: &str, gil: &[Gil]| {
                let samples = profile.all_samples().filter(|sample| {
                    sample.event == event
                        && gil.contains(&sample.gil)
                        && profile
                            .walk(sample.stack)
                            .any(|frame| profile.function(frame).name.contains(function))
                });
                samples.map(|sample| sample.weight).sum::<u64>()
            };
            for (function, bounds) in [("spin", 0.9..1.1), ("without", 0.0..0.2)] {
                let held = sum(CPU_EVENT, function, &[Gil::Held]);
                let all = sum(CPU_EVENT, function, &[Gil::Held, Gil::Nothing]);
                let held = share(held, all);
                assert_measured!(bounds.contains(&held), "3.{minor}: {held} in {function}");
                assert_measured!(all > 100, "3.{minor}: {all} samples in {function}");
            }
            let waited_ns = sum(OFF_CPU, "[waiting for the GIL]", &[Gil::Awaited]);
            assert_measured!(waited_ns > 50_000_000, "3.{minor}: {waited_ns} ns");
        }
    });
}
