//! A flame graph: an SVG that a browser shows, with zoom and search inside. Drawn by inferno.

use super::{Format, Options, command, folded};
use crate::profile::{Profile, is_time};
use engine::wire::offer::CPU_EVENT;
use inferno::flamegraph;
use std::io::{self, Write};

pub(super) struct Svg;

impl Format for Svg {
    fn name(&self) -> &'static str {
        "svg"
    }

    fn about(&self) -> &'static str {
        "flame graph, for a browser"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".svg"]
    }

    fn write(&self, profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
        let lines = folded::lines(profile, options);
        let lines: Vec<String> = lines
            .iter()
            .map(|(stack, weight)| format!("{stack} {weight}"))
            .collect();
        if lines.is_empty() {
            return out.write_all(EMPTY.as_bytes());
        }
        let times = profile.samples.iter().map(|sample| profile.time_ns(sample));
        let time = times.fold(0, u64::saturating_add);
        let mut look = flamegraph::Options::default();
        look.title = shorten(&command(profile));
        look.subtitle = Some(format!("{} of {}", profile.amount(time), profile.subject()));
        look.count_name = match profile.shown_event {
            CPU_EVENT => "samples",
            event if is_time(event) => "ns",
            _ => "times",
        }
        .to_owned();
        look.deterministic = true;
        // Into memory first: an error of the file must come out as what it is.
        let mut picture = Vec::new();
        let lines = lines.iter().map(String::as_str);
        flamegraph::from_lines(&mut look, lines, &mut picture).map_err(io::Error::other)?;
        out.write_all(&picture)
    }
}

/// A picture that says that there is nothing to see.
const EMPTY: &str = r#"<?xml version="1.0" standalone="no"?>
<svg version="1.1" width="1200" height="60" xmlns="http://www.w3.org/2000/svg"><text x="600" y="35" text-anchor="middle" font-family="monospace">no samples</text></svg>
"#;

/// Longer titles run out of the picture.
fn shorten(title: &str) -> String {
    const MOST: usize = 120;
    let mut short: String = title.chars().take(MOST).collect();
    if title.chars().count() > MOST {
        short.push('…');
    }
    if short.is_empty() {
        "Flame graph".clone_into(&mut short);
    }
    short
}
