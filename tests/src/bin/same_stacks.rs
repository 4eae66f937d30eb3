//! `same_stacks OURS THEIRS FUNCTION...`: compares two texts of the form that `perf script` prints,
//! sample by sample: of each its time, and which of the functions named are in its stack, from the
//! leaf. `tests/kernel/run` runs it inside another kernel. The exit status is 0 if they are equal,
//! and have many different stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// The least number of different stacks.
const ENOUGH: usize = 40;

/// Samples by time: their stacks, in any order.
type Samples = BTreeMap<String, Vec<String>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ours, theirs, functions @ ..] = &arguments[..] else {
        eprintln!("usage: same_stacks OURS THEIRS FUNCTION...");
        return ExitCode::from(2);
    };
    let [ours, theirs] = [ours, theirs].map(|path| match std::fs::read(path) {
        Ok(text) => samples(&String::from_utf8_lossy(&text), functions),
        Err(error) => {
            eprintln!("same_stacks: {path}: {error}");
            Samples::new()
        }
    });
    let stacks: BTreeSet<&String> = ours.values().flatten().collect();
    let differing = ours
        .iter()
        .filter(|(time, ours)| theirs.get(*time) != Some(ours));
    let differing: Vec<_> = differing.collect();
    println!(
        "{} samples against {}, {} different stacks; {} times differ",
        ours.values().map(Vec::len).sum::<usize>(),
        theirs.values().map(Vec::len).sum::<usize>(),
        stacks.len(),
        differing.len()
    );
    for (time, ours) in differing.iter().take(3) {
        println!("at {time}: {ours:?} against {:?}", theirs.get(*time));
    }
    let same = differing.is_empty() && ours.len() == theirs.len();
    match same && stacks.len() >= ENOUGH {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn samples(text: &str, functions: &[String]) -> Samples {
    let mut samples = Samples::new();
    for paragraph in text.split("\n\n") {
        let mut lines = paragraph.lines().filter(|line| !line.is_empty());
        let is_time = |word: &&str| word.ends_with(':') && word.contains('.');
        let time = lines
            .next()
            .and_then(|head| head.split_whitespace().find(is_time));
        let Some(time) = time else { continue };
        let own = lines.filter(|line| !line.ends_with("(inlined)"));
        let names = own.filter_map(|line| {
            let name = line.split_whitespace().nth(1)?.split('+').next()?;
            functions.iter().any(|known| known == name).then_some(name)
        });
        let stack = names.collect::<Vec<_>>().join(" ");
        let of_time = samples.entry(time.to_owned()).or_default();
        of_time.push(stack);
        of_time.sort();
    }
    samples
}
