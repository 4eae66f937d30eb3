//! Summaries of recordings made for the test.

use super::*;
use crate::profile::tests::example;
use crate::profile::{Call, CallId, FunctionId, Mode, OWN_WORK, SourceFrameId};
use crate::recording::LanguageId;
use crate::symbolize::NOT_DESCRIBED;
use engine::wire::code::UNREADABLE;

#[test]
fn the_account_of_a_recording() {
    let text = text(&example());
    let expect = [
        "   samples  4 samples with weight 7: 7.00 ms of CPU time, 1 process, 2 threads\n",
        "      lost  none\n",
        "  complete  57.1 % of weight reach _start or a thread's entry\n",
        "            42.9 % no unwind information, 100.0 % of them in work; more ([anonymous])\n",
        "   callers  found by 100.0 % eh_frame\n",
        "   trigger  perf event, user mode, by SIGURG, on 1 thread; a better one was refused: Permission denied (kernel mode needs \
         kernel.perf_event_paranoid at 1 or below, or CAP_PERFMON)\n",
        "   trigger  CPU timer (counts in kernel ticks), by SIGURG, on 1 thread; a better one was refused: Operation not permitted (perf events need \
         kernel.perf_event_paranoid at 2 or below, and in a container a seccomp profile that allows perf_event_open (or CAP_PERFMON))\n",
        "  CPU time  7.40 ms as the processes say themselves: the kernel's charge of their ends is not known\n",
        "             94.6 %   7.00 ms  sampled\n",
        "              5.4 %    400 µs  [threads, before they were armed]\n",
        "      cost  21.0 µs, 0.28 % of CPU time: 21.0 µs in the handler (5.25 µs a sample)\n",
    ];
    for line in expect {
        assert!(text.contains(line), "missing: {line}in:\n{text}");
    }
}

#[test]
fn own_work_is_no_part_of_what_is_complete() {
    let mut profile = example();
    let before = text(&profile);
    let mut note = profile.functions[0].clone();
    (note.name, note.mode) = (OWN_WORK.into(), Mode::Note);
    profile.functions.push(note);
    let mut frame = profile.frames[0].clone();
    frame.function = FunctionId::next_of(profile.functions.len() - 1);
    profile.frames.push(frame);
    profile.stacks.push(Call {
        parent: None,
        frame: SourceFrameId::next_of(profile.frames.len() - 1),
    });
    let mut own = profile.samples[0];
    own.stack = CallId::next_of(profile.stacks.len() - 1);
    own.complete = false;
    profile.samples.push(own);
    let line = |text: &str| {
        text.lines()
            .find(|line| line.contains("complete"))
            .map(str::to_owned)
    };
    assert_eq!(line(&text(&profile)), line(&before));
}

#[test]
fn frames_of_languages_without_a_name_are_counted() {
    let mut profile = example();
    let leaf = profile.stacks[profile.samples[0].stack.index()].frame;
    let function = profile.frames[leaf.index()].function;
    let language = Mode::Language(LanguageId::next_of(0));
    profile.functions[function.index()].mode = language;
    assert!(!text(&profile).contains("without a name"));
    for name in [UNREADABLE, NOT_DESCRIBED] {
        profile.functions[function.index()].name = name.into();
        let text = text(&profile);
        assert!(
            text.contains(" of languages (100.0 % of theirs) without a name"),
            "{text}"
        );
    }
}

#[test]
fn the_thread_whose_weight_is_off_is_named() {
    let mut profile = example();
    let worker = &mut profile.recording.threads[1];
    worker.totals.lost_weight = 97;
    worker.totals.lost_samples = 90;
    worker.end = worker.end.map(|end| crate::recording::ThreadEnd {
        cpu_ns: 100_200_000,
        ..end
    });
    let text = text(&profile);
    assert!(
        text.contains(
            "worst: thread worker (11) of prog (10) delivered 3.0 % of its 100 ms, 97.0 % lost\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("lost  90 with weight 97: lower the rate"),
        "{text}"
    );
}

#[test]
fn what_the_kernel_and_the_collector_took_is_said_apart_and_adds_up() {
    let mut profile = example();
    profile.recording.session = Some(crate::recording::SessionInfo {
        event_ns: 1_000,
        switches: 500,
        switch_ns: 2_000,
        thread_ns: 30_000,
        collector_ns: 5_000_000,
        ..Default::default()
    });
    let said = text(&profile);
    let estimate = said.lines().find(|line| line.contains("besides, some"));
    let estimate = estimate.unwrap_or_else(|| panic!("{said}"));
    let (_, parts) = estimate.split_once("the kernel's perf events (").unwrap();
    let (samples, others) = parts.split_once(" samples at 1.00 µs, ").unwrap();
    assert_eq!(
        others,
        "500 context switches at 2.00 µs, 2 threads at 30.0 µs)"
    );
    let all = samples.parse::<u64>().unwrap() * 1_000 + 500 * 2_000 + 2 * 30_000;
    let all = format!("besides, some {}, ", duration(all));
    assert!(estimate.contains(&all), "{estimate}");
    assert!(
        said.contains("            besides, 5.00 ms: rsunwind itself, which recorded it\n"),
        "{said}"
    );
    // A thread that had a timer for half of its time.
    let thread = &mut profile.recording.threads[0];
    let last = thread.armings.last().unwrap().clone();
    let end_ns = thread
        .end
        .map_or(last.time_ns + 1_000_000, |end| end.time_ns);
    let later = crate::recording::Arming {
        trigger: engine::wire::sample::Trigger::Timer,
        refused: 0,
        time_ns: last.time_ns.midpoint(end_ns),
        ..last
    };
    thread.armings.push(later);
    let fewer = text(&profile);
    let switches = |said: &str| -> u64 {
        let (before, _) = said.split_once(" context switches at").expect("some");
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!((1..500).contains(&switches(&fewer)), "{fewer}");
    let why =
        "1 thread had a timer for a while: with an event, context switches alone would take more";
    assert!(fewer.contains(why) && !said.contains(why), "{fewer}");
    profile.recording.threads[0].armings.pop();
    assert_eq!(switches(&text(&profile)), 500);
    profile.recording.processes[0].cpu_ns = 1;
    let session = profile.recording.session.as_mut().unwrap();
    session.load_ns = 70_000;
    let said = text(&profile);
    let loading = "2 threads at 30.0 µs), loading the library and its end (1 program at 70.0 µs)\n";
    assert!(said.contains(loading), "{said}");
    profile.recording.processes[0].cpu_ns = 0;
    // Without perf events there is nothing that they cost.
    for thread in &mut profile.recording.threads {
        thread.totals = Default::default();
    }
    assert!(!text(&profile).contains("besides, some"));
}

#[test]
fn what_a_hypervisor_took_is_said() {
    let mut profile = example();
    assert!(!text(&profile).contains("hypervisor"));
    profile.recording.session = Some(crate::recording::SessionInfo {
        end_ns: 1_000_000_000,
        processors: 2,
        stolen_ns: 40_000_000,
        ..Default::default()
    });
    let said = text(&profile);
    let expected = "    stolen  40.0 ms, 2.0 % of the processors' time: ";
    assert!(said.contains(expected), "{said}");
}
