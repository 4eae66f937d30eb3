//! What a walk costs when a part of the stack is as it was at the walk before, as between two
//! samples of a program.

use crate::generate::{Program, Random};

/// How deep stacks are, and how many of their innermost frames change from walk to walk.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub depth: usize,
    pub changed: usize,
    /// Bytes of memory that the program writes between two walks.
    pub work: usize,
}

pub const CASES: [Case; 6] = [
    Case {
        name: "10 of 60 changed",
        depth: 60,
        changed: 10,
        work: 0,
    },
    Case {
        name: "3 changed",
        depth: 60,
        changed: 3,
        work: 0,
    },
    Case {
        name: "none",
        depth: 60,
        changed: 0,
        work: 0,
    },
    Case {
        name: "10 of 1,000",
        depth: 1000,
        changed: 10,
        work: 0,
    },
    Case {
        name: "3 of 60 after 8 MB of other work",
        depth: 60,
        changed: 3,
        work: 8 << 20,
    },
    Case {
        name: "all of 60 after that",
        depth: 60,
        changed: 60,
        work: 8 << 20,
    },
];

/// Several outer parts, each with so many walks of which the first are not counted.
const PARTS: u64 = 8;
const WALKS: usize = 40;
const UNCOUNTED: usize = 5;

/// ns per frame, the mean of the middle half of the walks: where a clock counts in steps of 10 ns,
/// a mean says more than a median. `walk` runs the program along a path and gives the time of the
/// walk there, in ns, and its frames, unless something came between.
pub fn measure(
    case: &Case,
    program: &Program,
    mut walk: impl FnMut(&[u32]) -> Option<(f64, f64)>,
) -> f64 {
    let mut other = vec![0u8; case.work];
    let mut times = Vec::new();
    for part in 0..PARTS {
        let mut random = Random::new(1_000 + part);
        let mut path = program.path(case.depth, &mut random);
        for number in 0..WALKS {
            program.change(&mut path, case.changed, &mut random);
            other
                .iter_mut()
                .step_by(64)
                .for_each(|byte| *byte = byte.wrapping_add(1));
            std::hint::black_box(&other);
            let found = walk(&path).filter(|_| number >= UNCOUNTED);
            times.extend(found.map(|(time, frames)| time / frames));
        }
    }
    times.sort_by(f64::total_cmp);
    let quarter = times.len() / 4;
    let middle = &times[quarter..times.len() - quarter];
    middle.iter().sum::<f64>() / middle.len() as f64
}
