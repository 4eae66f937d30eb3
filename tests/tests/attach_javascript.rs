//! `record -p` of JavaScript: the functions on stacks that the kernel copied, which the program has
//! left by the time that they are read.

use collector::clock::monotonic_ns;
use rsunwind_tests::assert_measured;
use rsunwind_tests::attach::{Recorder, Target, cpu_ns};
use rsunwind_tests::command::{Bench, rsunwind, wait_for};
use rsunwind_tests::nodes::all;
use rsunwind_tests::profiles::{names, profile, weight};
use rsunwind_tests::repository;
use rsunwind_tests::statistics::{judge, share};
use std::process::Command;

/// A second of CPU time, ns.
const SECOND: u64 = 1_000_000_000;

/// The numbers of functions of that name.
fn numbers<'a>(names: &[&'a str], name: &str) -> Vec<&'a str> {
    let numbers = names.iter().filter_map(|one| one.strip_prefix(name));
    numbers
        .filter(|number| number.parse::<u32>().is_ok())
        .collect()
}

/// Waits until a program has used so much CPU time more.
fn work(target: &Target, ns: u64) {
    let before = cpu_ns(target.pid());
    wait_for("its work", || {
        (cpu_ns(target.pid()) > before + ns).then_some(())
    });
}

#[test]
fn a_regular_expression_is_named_in_copies_too() {
    const WORK: &str = "for (;;) /(?:a|b)*?[xyz]/.test('a'.repeat(3000))";
    for (major, node) in all() {
        judge(|| {
            let target = Target::start(Command::new(&node).args(["-e", WORK]));
            work(&target, SECOND / 2);
            let bench = Bench::new();
            let mut command = Command::new(rsunwind());
            command.args(["record", "-F", "300", "--how", "copies", "-p"]);
            command.arg(target.pid().to_string()).arg("-o");
            let recorder = Recorder::begin(command.arg(bench.path("a.rsu")));
            work(&target, SECOND);
            recorder.signal("INT");
            let (status, printed) = recorder.end();
            assert_eq!(status, Some(0), "{printed}");
            let profile = profile(&bench, "a.rsu");
            let expression = Some(&"(regular expression)");
            let named = weight(&profile, |sample| {
                names(&profile, sample).first() == expression
            });
            let all = weight(&profile, |_| true);
            assert_measured!(
                named > 100 && share(named, all) > 0.9,
                "Node {major}: {named} of {all}"
            );
        });
    }
}

#[test]
fn time_in_the_kernel_has_the_functions_that_the_stack_proves() {
    for (major, node) in all() {
        for how in ["auto", "copies"] {
            judge(|| {
                let script = repository().join("tests/victims/js/closures.js");
                let target = Target::start(Command::new(&node).arg(script));
                work(&target, SECOND / 2);
                let bench = Bench::new();
                let mut command = Command::new(rsunwind());
                // As many as are looked at soon, also where neither this nor that is optimized.
                command.args(["record", "-F", "300", "--how", how, "-p"]);
                command.arg(target.pid().to_string()).arg("-o");
                let recorder = Recorder::begin(command.arg(bench.path("a.rsu")));
                // Meanwhile Node's tables are read, and stacks have to wait.
                work(&target, SECOND);
                let is_ready_ns = monotonic_ns();
                (0..2).for_each(|_| work(&target, SECOND));
                recorder.signal("INT");
                let (status, printed) = recorder.end();
                assert_eq!(status, Some(0), "{printed}");
                let profile = profile(&bench, "a.rsu");
                let (mut all, mut whole) = (0, 0);
                for sample in &profile.samples {
                    let names = names(&profile, sample);
                    if !names.contains(&"do_syscall_64") || !names.contains(&"uv_fs_read") {
                        continue;
                    }
                    let [inner, outer] = ["inner", "outer"].map(|name| numbers(&names, name));
                    let what = format!("Node {major}, {how}: {names:?}");
                    assert!(inner.len() < 2 && outer.len() < 2, "{what}");
                    let is_whole = !inner.is_empty() && !outer.is_empty();
                    assert!(!is_whole || inner == outer, "{what}");
                    if sample.time_ns > is_ready_ns {
                        all += sample.weight;
                        whole += if is_whole { sample.weight } else { 0 };
                    }
                }
                assert_measured!(all > 100, "Node {major}, {how}: {all}");
                assert_measured!(
                    whole * 10 >= all * 9,
                    "Node {major}, {how}: {whole} of {all}"
                );
            });
        }
    }
}
