//! What the handler asks of the kernel in steady state: with a perf event now and then the thread's
//! CPU clock, with a timer nothing; wherever the thread stands on a stack of its own, its
//! walks read it without asking.

use engine::wire::sample::flags;
use rsunwind_tests::run::Run;
use rsunwind_tests::traced::{self, Trace};
use rsunwind_tests::victim;

/// The signal that threads are asked by, as strace names it.
const SIGNAL: &str = "SIGURG";
/// Runs of the handler until it has seen the whole stack and all code.
const UNTIL_STEADY: usize = 10;
/// So many later runs may meet code for the first time: the few instructions around a reading of
/// the clock, whose tables are read then.
const MEET_NEW_CODE: usize = 3;
const OWN: [&str; 4] = ["main", "thread", "child", "child-of-thread"];

/// Runs the victim under strace; gives (place, system calls of each run of its handler).
fn runs_of_the_handler(settings: &str, places: &[&str]) -> Vec<(String, Vec<Vec<String>>)> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let outcome = Run::profiled(settings, victim::c("steady.c"))
        .args(places)
        .with(|command| traced::trace(command, &file))
        .outcome()
        .quiet();
    let trace = Trace::read(&file);
    let said = outcome.text();
    let places = said.lines().filter_map(|line| line.split_once(' '));
    places
        .map(|(place, tid)| {
            let runs = trace.in_handler(tid.parse().unwrap(), SIGNAL);
            // Under strace samples cost so much that they come less often.
            assert!(
                runs.len() > UNTIL_STEADY + UNTIL_STEADY / 2,
                "{place}: {} runs",
                runs.len()
            );
            (place.to_string(), runs)
        })
        .collect()
}

#[track_caller]
fn assert_steady(place: &str, runs: &[Vec<String>], is_right: impl Fn(&[String]) -> bool) {
    let steady = &runs[UNTIL_STEADY..];
    let others: Vec<_> = steady.iter().filter(|run| !is_right(run)).collect();
    assert!(
        others.len() <= MEET_NEW_CODE,
        "{place}: {others:?} of {}",
        steady.len()
    );
}

#[test]
fn a_steady_handler_asks_for_the_clock_now_and_then_and_nothing_else() {
    for (place, runs) in runs_of_the_handler("rate=500", &OWN) {
        let is_clock = |run: &[String]| run.iter().all(|name| name == "clock_gettime");
        assert_steady(&place, &runs, |run| is_clock(run) && run.len() <= 2);
        // At 500 Hz each twentieth sample, and those that stand for several.
        let asked = runs.iter().filter(|run| !run.is_empty()).count();
        // One that was put off the processor asks again, what of its time was its own.
        let again = runs[UNTIL_STEADY..].iter();
        let again = again.filter(|run| is_clock(run) && run.len() == 2).count();
        assert!(
            again <= MEET_NEW_CODE + asked / 2,
            "{place}: {again} again of {asked}"
        );
        assert!(
            asked > 0 && asked < runs.len() / 2,
            "{place}: {asked} of {}",
            runs.len()
        );
    }
}

#[test]
fn by_timer_it_asks_for_nothing() {
    for (place, runs) in runs_of_the_handler("rate=200,trigger=timer", &OWN) {
        assert_steady(&place, &runs, <[String]>::is_empty);
    }
}

#[test]
fn on_a_stack_that_is_not_the_threads_each_page_is_asked_for() {
    // The control: there it must.
    for (place, runs) in runs_of_the_handler("rate=500", &["context"]) {
        let asked = runs[UNTIL_STEADY..]
            .iter()
            .filter(|run| run.iter().any(|name| name == "rt_sigprocmask"))
            .count();
        assert!(asked > MEET_NEW_CODE, "{place}: {asked} of {}", runs.len());
    }
}

#[test]
fn samples_say_whether_the_stack_was_the_threads_own() {
    let foreign = |places: &[&str]| {
        let outcome = Run::profiled("rate=500", victim::c("steady.c"))
            .args(places)
            .outcome()
            .quiet();
        let mut counts = (0usize, 0usize);
        for recording in outcome.recordings() {
            for sample in recording
                .threads
                .values()
                .flat_map(|thread| &thread.samples)
            {
                if sample.frames.len() > 60 {
                    counts.0 += 1;
                    counts.1 += usize::from(sample.head.flags & flags::FOREIGN_STACK != 0);
                }
            }
        }
        counts
    };
    let (all, others) = foreign(&OWN);
    assert!(all > 150 && others == 0, "{others} of {all}");
    let (all, others) = foreign(&["context"]);
    assert!(all > 40 && others == all, "{others} of {all}");
}

/// How often a short program makes each system call.
fn calls_of_a_short_program(run: Run) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let traced = run.with(|command| traced::trace(command, &file));
    let _ = traced.outcome().quiet();
    let steps = Trace::read(&file).threads.into_values().flatten();
    let calls = steps.filter_map(|step| match step {
        traced::Step::Call(name, _) => Some(name),
        traced::Step::Signal(_) => None,
    });
    calls.collect()
}

#[test]
fn a_program_that_begins_and_ends_asks_for_little_more() {
    /// What it took when this was written, and a few; it had been 180.
    const MOST: usize = 110;
    let plain = calls_of_a_short_program(Run::plain("/bin/true"));
    let recorded = calls_of_a_short_program(Run::profiled("rate=1", "/bin/true"));
    let more = recorded.len() - plain.len();
    assert!(more <= MOST, "{more} more: {recorded:?}");
    let of = |name: &str| recorded.iter().filter(|call| *call == name).count();
    // No library of its has set a handler, and the kernel says so.
    assert!(of("rt_sigaction") < 8 && more > 20, "{recorded:?}");
}
