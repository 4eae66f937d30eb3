//! `record -p` of JavaScript: the functions on stacks that the kernel copied, which the program has
//! left by the time that they are read.

use rsunwind_tests::assert_measured;
use rsunwind_tests::attach::{Target, cpu_ns};
use rsunwind_tests::command::{Bench, output, rsunwind, text, wait_for};
use rsunwind_tests::nodes::all;
use rsunwind_tests::profiles::{names, profile};
use rsunwind_tests::repository;
use rsunwind_tests::statistics::judge;
use std::process::Command;

/// The numbers of functions of that name.
fn numbers<'a>(names: &[&'a str], name: &str) -> Vec<&'a str> {
    let numbers = names.iter().filter_map(|one| one.strip_prefix(name));
    numbers
        .filter(|number| number.parse::<u32>().is_ok())
        .collect()
}

#[test]
fn time_in_the_kernel_has_the_functions_that_the_stack_proves() {
    for (major, node) in all() {
        for how in ["auto", "copies"] {
            judge(|| {
                let script = repository().join("tests/victims/js/closures.js");
                let target = Target::start(Command::new(&node).arg(script));
                wait_for("its work", || {
                    (cpu_ns(target.pid()) > 500_000_000).then_some(())
                });
                let bench = Bench::new();
                let mut command = Command::new(rsunwind());
                command.args(["record", "-q", "-F", "500", "-d", "2s", "--how", how, "-p"]);
                command.arg(target.pid().to_string()).arg("-o");
                let result = output(command.arg(bench.path("a.rsu")));
                assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
                let profile = profile(&bench, "a.rsu");
                let (mut all, mut whole) = (0, 0);
                for sample in &profile.samples {
                    let names = names(&profile, sample);
                    if !names.contains(&"do_syscall_64") || !names.contains(&"uv_fs_read") {
                        continue;
                    }
                    all += sample.weight;
                    let [inner, outer] = ["inner", "outer"].map(|name| numbers(&names, name));
                    let what = format!("Node {major}, {how}: {names:?}");
                    assert!(inner.len() < 2 && outer.len() < 2, "{what}");
                    if !inner.is_empty() && !outer.is_empty() {
                        assert_eq!(inner, outer, "{what}");
                        whole += sample.weight;
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
