//! A flame graph: an SVG that a browser shows, with zoom and search inside. Drawn by inferno.
//!
//! Inferno has one text for a frame. Where a function is called by a shorter name, ours has two
//! lines: the short name, and what a tooltip shows below it. The frame itself has room for the
//! first.

use super::call_tree::{CallTree, Name, Step};
use super::{Format, Options, colours, command};
use crate::profile::{Profile, is_time};
use engine::wire::offer::CPU_EVENT;
use inferno::flamegraph::{self, color::PaletteMap};
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
        let tree = CallTree::of(profile, options);
        let whole = tree.whole();
        if whole == 0 {
            return out.write_all(EMPTY.as_bytes());
        }
        let mut look = flamegraph::Options::default();
        // What is narrower is not drawn.
        let least = whole as f64 * look.min_width / 100.0;
        let mut lines = Vec::new();
        let mut palette = PaletteMap::default();
        let coloured = |path: &mut String, step: &Step<'_>| {
            let begin = path.len();
            path.push(colours::mark(step));
            two_lines(path, step.name);
            palette.insert(&path[begin..], colours::colour(step));
        };
        let kept = tree.paths(least as u64, coloured, |stack, weight| {
            lines.push(format!("{stack} {weight}"));
            Ok::<_, io::Error>(())
        });
        kept?;
        let times = profile.weighed().map(|sample| profile.time_ns(sample));
        let time = times.fold(0, u64::saturating_add);
        look.title = shorten(&command(profile));
        look.subtitle = Some(format!("{} of {}", profile.amount(time), profile.subject()));
        look.count_name = match profile.shown_event {
            CPU_EVENT => "samples",
            event if is_time(event) => "ns",
            _ => "times",
        }
        .to_owned();
        look.deterministic = true;
        look.text_truncate_direction = flamegraph::TextTruncateDirection::Right;
        palette.insert("", colours::plain()); // all together, which inferno gives no name
        look.palette_map = Some(&mut palette);
        look.bgcolors = Some(colours::ground());
        // Into memory first: an error of the file must come out as what it is.
        let mut picture = Vec::new();
        let lines = lines.iter().map(String::as_str);
        flamegraph::from_lines(&mut look, lines, &mut picture).map_err(io::Error::other)?;
        let picture = first_lines(&String::from_utf8_lossy(&picture));
        let legend = colours::legend(&tree, profile);
        out.write_all(colours::finish(&picture, &legend).as_bytes())
    }
}

/// The short name of a function, and below it the whole one, if there are two.
pub(super) fn two_lines(path: &mut String, name: &Name) {
    if let Some(shown) = &name.shown {
        path.push_str(shown);
        path.push('\n');
    }
    path.push_str(&name.whole);
}

/// Where inferno's script takes a frame's text from its tooltip: all but the counts at the end.
const OF_TOOLTIP: &str = r#".textContent.replace(/\([^(]*\)$/,"")"#;
/// The same of the first line, if there are two.
const OF_FIRST_LINE: &str = r#".textContent.replace(/(\n[^]*|\([^(]*\))$/,"")"#;

/// Leaves the first line in the texts of frames.
pub(super) fn first_lines(picture: &str) -> String {
    let picture = picture.replace(OF_TOOLTIP, OF_FIRST_LINE);
    let mut out = String::with_capacity(picture.len());
    let mut rest = &*picture;
    while let Some(at) = rest.find("<text") {
        let (before, text) = rest.split_at(at);
        let (text, behind) = text.split_at(text.find("</text>").unwrap_or(text.len()));
        out.push_str(before);
        out.push_str(text.split('\n').next().unwrap_or_default());
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// A picture that says that there is nothing to see.
const EMPTY: &str = r#"<?xml version="1.0" standalone="no"?>
<svg version="1.1" width="1200" height="60" xmlns="http://www.w3.org/2000/svg"><text x="600" y="35" text-anchor="middle" font-family="monospace">no samples</text></svg>
"#;

/// Longer titles run out of the picture.
pub(super) fn shorten(title: &str) -> String {
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
