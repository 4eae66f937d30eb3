//! A flame graph of two profiles: as wide as the second one, red where that has more than the first
//! and blue where it has less. Drawn by inferno.

use super::call_tree::{CallTree, Step};
use super::svg::{first_lines, shorten, two_lines};
use super::{Options, command};
use crate::intern::HashMap;
use crate::profile::{Profile, is_time};
use inferno::flamegraph;
use std::io::{self, Write};

/// What is less than one part in so many of a profile is not told apart.
const LEAST: u64 = 10_000;

/// Writes the picture; `factor` makes the first profile comparable with the second one.
///
/// # Errors
/// Those of `out`.
pub(crate) fn write(
    profiles: [&Profile; 2],
    factor: f64,
    subtitle: String,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let in_time = is_time(profiles[1].shown_event);
    let mut stacks: HashMap<String, [u64; 2]> = HashMap::default();
    for (index, profile) in profiles.iter().enumerate() {
        let factor = if index == 0 { factor } else { 1.0 };
        let unit = if in_time { 1000.0 } else { 1.0 };
        let tree = CallTree::of_times(profile, options);
        let join = |path: &mut String, step: &Step<'_>| two_lines(path, step.name);
        tree.paths(tree.whole() / LEAST, join, |stack, amount| {
            let amount = (amount as f64 * factor / unit).round() as u64;
            stacks.entry(stack.to_owned()).or_default()[index] += amount;
            Ok::<_, io::Error>(())
        })?;
    }
    let lines = stacks.iter();
    let lines: Vec<String> = lines
        .map(|(stack, [first, second])| format!("{stack} {first} {second}"))
        .collect();
    let mut look = flamegraph::Options::default();
    look.title = shorten(&command(profiles[1]));
    look.subtitle = Some(subtitle);
    look.count_name = if in_time { "µs" } else { "times" }.to_owned();
    look.deterministic = true;
    look.text_truncate_direction = flamegraph::TextTruncateDirection::Right;
    let mut picture = Vec::new();
    let lines = lines.iter().map(String::as_str);
    flamegraph::from_lines(&mut look, lines, &mut picture).map_err(io::Error::other)?;
    out.write_all(first_lines(&String::from_utf8_lossy(&picture)).as_bytes())
}
