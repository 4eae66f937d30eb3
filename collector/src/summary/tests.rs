//! Summaries of recordings made for the test.

use super::*;
use crate::profile::tests::example;

#[test]
fn the_account_of_a_recording() {
    let text = text(&example());
    let expect = [
        "   samples  4 samples with weight 7: 7.00 ms of CPU time, 1 process, 2 threads\n",
        "      lost  none\n",
        "  complete  57.1 % of weight reach _start or a thread's entry\n",
        "            42.9 % no unwind information, 100.0 % of them in work; more ([anonymous])\n",
        "   callers  found by 100.0 % eh_frame\n",
        "   trigger  perf event, user mode on 1 thread; a better one was refused: Permission denied (kernel mode needs \
         kernel.perf_event_paranoid at 1 or below, or CAP_PERFMON)\n",
        "   trigger  CPU timer (counts in kernel ticks) on 1 thread; a better one was refused: Operation not permitted (perf events need \
         kernel.perf_event_paranoid at 2 or below, and in a container a seccomp profile that allows perf_event_open (or CAP_PERFMON))\n",
        "   covered  100.0 % of 7.00 ms CPU time while armed\n",
        "  not seen  1.00 ms before threads were armed\n",
        "      cost  21.0 µs in the handler, 0.30 % of CPU time, 5.25 µs a sample\n",
    ];
    for line in expect {
        assert!(text.contains(line), "missing: {line}in:\n{text}");
    }
}

#[test]
fn the_thread_whose_weight_is_off_is_named() {
    let mut profile = example();
    let worker = &mut profile.recording.threads[1];
    worker.totals.lost_weight = 97;
    worker.totals.lost_samples = 90;
    worker.end = worker.end.map(|end| crate::recording::ThreadEnd {
        cpu_ns: 100_500_000,
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
fn what_the_program_before_exec_used_was_seen_in_its_own_account() {
    let mut profile = example();
    // The same, read once more, as the run after it.
    let mut again = example().recording;
    let mut process = again.processes.remove(0);
    process.key += 1;
    let mut after = again.threads.remove(0);
    let used = after.cpu_ns();
    assert!(used > 0);
    after.process = crate::recording::ProcessId::next_of(1);
    after.armings.clear();
    after.totals.unarmed_cpu_ns = used + 2_000_000;
    profile.recording.processes.push(process);
    profile.recording.threads.push(after);
    // 1 ms of the program before, 2 ms of this one.
    let seen = text(&profile);
    assert!(
        seen.contains("not seen  3.00 ms before threads were armed\n"),
        "{seen}"
    );
    // Another process that had the same number once is another one.
    profile.recording.processes[1].start_ticks += 1;
    let seen = text(&profile);
    assert!(!seen.contains("not seen  3.00 ms"), "{seen}");
}
