//! ns and instructions per frame of this engine and of others, measured side by side: `cargo bench
//! -p rsunwind-engine`.
//!
//! Stacks are random paths, 60 deep, through 200 or 5,000 generated functions with four call sites
//! each (800 or 20,000 return addresses), 0 to 6 live callee-saved registers, frames of 0 to 520
//! bytes, 4 % with alloca. Every walk happens in a signal handler. Each unwinder runs in processes
//! of its own, forked in turn, five times; the table has medians.
//!
//! * warm: the same stack again and again. * steady: a new stack for every signal, third pass over
//!   500 stacks. * cold: the first ten stacks of a process.
//! * Instructions are counted by stepping through one steady walk with ptrace: no counter hardware
//!   is needed.
//!
//! Traps: linking libunwind replaces `backtrace`, so it is loaded with dlopen; a recursive function
//! proves nothing.
#![allow(
    unsafe_code,
    missing_docs,
    clippy::undocumented_unsafe_blocks,
    clippy::deref_addrof
)]

mod changes;
mod generate;
mod measure;
mod ours;
#[path = "../../tests/support/mod.rs"]
mod support;
mod walkers;

use changes::CASES;
use generate::Program;
use measure::Numbers;
use walkers::WALKERS;

const ROUNDS: usize = 5;

fn main() {
    if !cfg!(target_arch = "x86_64") {
        println!("this benchmark generates code for x86-64");
        return;
    }
    let rounds = std::env::var("ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(ROUNDS);
    let only = std::env::var("ONLY").unwrap_or_default();
    let ghz = measure::clock_ghz();
    let programs =
        [false, true].map(|fp| [200, 5000].map(|functions| Program::build(functions, fp)));
    let mut all: Vec<Results> = vec![Vec::new(); WALKERS.len()];
    for round in 0..rounds {
        for (walker, results) in WALKERS.iter().zip(&mut all) {
            if walker.name.contains(&only) {
                let programs = &programs[usize::from(walker.frame_pointers)];
                results
                    .push([0, 1].map(|i| measure::in_child(walker, &programs[i], ghz, round == 0)));
            }
        }
    }
    print_whole(&all);
    print_changed(&all);
}

type Results = Vec<[Numbers; 2]>;

fn median(results: &Results, of: impl Fn(&[Numbers; 2]) -> f64) -> f64 {
    let mut values: Vec<f64> = results.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_changed(all: &[Results]) {
    println!("\nns per frame, 800 pcs / 20,000\n");
    let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    println!("| unwinder | {} |", names.join(" | "));
    println!("|{}", "---|".repeat(names.len() + 1));
    for (walker, results) in WALKERS.iter().zip(all) {
        if results.is_empty() {
            continue;
        }
        let cell = |case: usize| {
            let [few, many] = [0, 1].map(|program| median(results, |n| n[program].changed[case]));
            format!("{few:.2} / {many:.2}")
        };
        let cells: Vec<String> = (0..CASES.len()).map(cell).collect();
        println!("| {} | {} |", walker.name, cells.join(" | "));
    }
}

fn print_whole(all: &[Results]) {
    println!("ns per frame; instructions per frame, steady\n");
    println!(
        "| unwinder | warm | steady, 800 pcs | steady, 20,000 pcs | cold, 800 | cold, 20,000 | instructions, 800 / 20,000 |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (walker, results) in WALKERS.iter().zip(all) {
        if results.is_empty() {
            continue;
        }
        let median = |of: &dyn Fn(&[Numbers; 2]) -> f64| median(results, of);
        let cold = |program: usize| {
            if walker.is_prefilled {
                "–".into()
            } else {
                format!("{:.0}", median(&|n| n[program].cold))
            }
        };
        println!(
            "| {} | {:.1} | {:.1} | {:.1} | {} | {} | {:.0} / {:.0} |",
            walker.name,
            median(&|n| n[0].warm),
            median(&|n| n[0].steady),
            median(&|n| n[1].steady),
            cold(0),
            cold(1),
            results[0][0].instructions,
            results[0][1].instructions,
        );
    }
}
