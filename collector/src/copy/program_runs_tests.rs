//! Program runs that are copied, by what happens to their threads.

use super::*;
use crate::processes::FoundThread;
use engine::wire::chunk::ChunkInfo;

const PERIOD_NS: u64 = 1_000_000;
/// Nobody has these numbers.
const LEADER: i32 = 1 << 30;
const OTHER: i32 = LEADER + 1;

fn runs() -> ProgramRuns {
    let mut settings = Settings::new(PERIOD_NS, 64, 0);
    settings.running = true;
    let mut runs = ProgramRuns::new(settings);
    let thread = |tid, cpu_ns| FoundThread {
        tid,
        cpu_ns,
        runs: true,
        name: Vec::new(),
    };
    let adopted = Adopted {
        found: Found {
            mappings: Vec::new(),
            threads: vec![thread(LEADER, 3_000_000_000), thread(OTHER, 7_000_000_000)],
            identity: Default::default(),
        },
        kernel_refused: None,
        unwatched: 0,
        has_library: false,
    };
    runs.adopt(LEADER, 10, adopted);
    runs
}

/// The thread uses as many ms, and its clock shows that.
fn uses(runs: &mut ProgramRuns, tid: i32, begin_ms: u64, ms: u64, cpu_ms: u64) {
    let task = Task { pid: LEADER, tid };
    for at in begin_ms..begin_ms + ms {
        runs.take_in(TaskRecord {
            time_ns: at * 1_000_000,
            task,
            what: What::Sample(Box::default()),
        });
    }
    let clock = Clock {
        task,
        cpu_ns: cpu_ms * 1_000_000,
        now_ns: (begin_ms + ms) * 1_000_000,
    };
    runs.settle(&[clock], true);
}

/// The last of what was recorded of each thread, by program run.
fn recorded(runs: &mut ProgramRuns) -> Vec<((u64, u32), ChunkInfo)> {
    runs.finish(1_000_000_000);
    let mut last: HashMap<(u64, u32), ChunkInfo> = HashMap::new();
    for (info, _) in runs.chunks().into_iter().filter(|(info, _)| info.tid != 0) {
        last.insert((info.process_key, info.tid), info);
    }
    let mut last: Vec<_> = last.into_iter().collect();
    last.sort_by_key(|(name, _)| *name);
    last
}

#[test]
fn a_thread_that_calls_exec_takes_its_cpu_time_along() {
    for by in [LEADER, OTHER] {
        let mut runs = runs();
        uses(&mut runs, LEADER, 1, 20, 3_020);
        uses(&mut runs, OTHER, 30, 50, 7_050);
        let happens = |tid, what| TaskRecord {
            time_ns: 100_000_000,
            task: Task { pid: LEADER, tid },
            what,
        };
        let other = if by == LEADER { OTHER } else { LEADER };
        runs.take_in(happens(other, What::Exit));
        // It has the number of the process by now.
        runs.take_in(happens(LEADER, What::Exec(b"next".to_vec())));
        let before_ms = if by == LEADER { 3_020 } else { 7_050 };
        uses(&mut runs, LEADER, 110, 40, before_ms + 40);
        let weights = recorded(&mut runs);
        let weights: Vec<_> = weights
            .iter()
            .map(|((_, tid), info)| (tid.cast_signed(), info.weight))
            .collect();
        assert_eq!(weights, [(LEADER, 20), (OTHER, 50), (LEADER, 40)], "{by}");
    }
}
