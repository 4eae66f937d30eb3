//! Reports of a recording made for the test.

use super::*;
use crate::profile::tests::example;

fn report(by: By, sort: Sort) -> String {
    let args = Args {
        files: Vec::new(),
        by,
        sort,
        limit: None,
        summary: false,
        no_pager: true,
        selection: Selection::default(),
    };
    text(&example(), &args)
}

#[test]
fn functions_by_self_time_with_recursion_counted_once() {
    assert_eq!(
        report(By::Function, Sort::Own),
        "prog --fast
7.00 ms of CPU time in 4 samples, 1 process and 2 threads

              SELF               TOTAL  MODULE       FUNCTION
  4.00 ms   57.1 %    4.00 ms   57.1 %  [anonymous]  leaf
  3.00 ms   42.9 %    5.00 ms   71.4 %  [anonymous]  work; more
        0    0.0 %    4.00 ms   57.1 %  [anonymous]  _start
        0    0.0 %    4.00 ms   57.1 %  [anonymous]  main
        0    0.0 %    3.00 ms   42.9 %  -            [truncated: no unwind information]
        0    0.0 %    1.00 ms   14.3 %  -            [5 frames elided]
"
    );
}

#[test]
fn other_orders_and_groups() {
    let names = |by, sort| {
        let text = report(by, sort);
        let rows = text.lines().skip(4).map(|row| row[40..].trim().to_owned());
        rows.collect::<Vec<_>>().join("|")
    };
    let total = names(By::Function, Sort::Total);
    assert!(total.starts_with("[anonymous]  work; more|"), "{total}");
    let name = names(By::Function, Sort::Name);
    assert!(
        name.starts_with("-            [5 frames elided]|"),
        "{name}"
    );
    let threads = report(By::Thread, Sort::Own);
    assert!(
        threads.contains("  4.00 ms   57.1 %  prog (10)    prog (10)\n"),
        "{threads}"
    );
    assert!(
        threads.contains("  3.00 ms   42.9 %  worker (11)  prog (10)\n"),
        "{threads}"
    );
    let processes = report(By::Process, Sort::Own);
    assert!(
        processes.contains("7.00 ms  100.0 %  prog (10)  prog --fast\n"),
        "{processes}"
    );
    let modules = report(By::Module, Sort::Own);
    assert!(
        modules.contains("7.00 ms  100.0 %    7.00 ms  100.0 %  [anonymous]"),
        "{modules}"
    );
}

#[test]
fn an_empty_selection_says_so() {
    let mut profile = example();
    profile.samples.clear();
    let args = Args {
        files: Vec::new(),
        by: By::Function,
        sort: Sort::Own,
        limit: None,
        summary: false,
        no_pager: true,
        selection: Selection::default(),
    };
    assert!(text(&profile, &args).contains("No samples of the processes and threads"));
}
