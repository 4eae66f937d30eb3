//! The colours of a flame graph: those of the page, by the kind of code, and a legend of them.
//!
//! Inferno colours a frame by its text, but the same text can stand in several kinds. So each
//! begins with a character that no text has, and that is taken away again when the picture is
//! drawn.

use super::call_tree::{CallTree, Step};
use crate::profile::{Kind, Profile, WAITING};
use engine::wire::source::{OFF_CPU, WALL};
use inferno::flamegraph::color::{BackgroundColor, Color};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Of processes, threads and all together.
const PLAIN: &str = "#e3e3e3";
/// Neighbours of a kind are this much lighter or darker.
const SHADES: [i8; 3] = [0, 9, -9];
/// The first of the marks: of those colours, in every shade. They are characters for private use,
/// and taken away only where a text begins.
const FIRST_MARK: u32 = 0xf_0000;
/// The row of the legend, in pixels, and where it is.
const ROW: u32 = 22;
const LEGEND_Y: u32 = 66;

/// What a frame's text begins with.
pub(super) fn mark(step: &Step<'_>) -> char {
    let (style, _) = style(step);
    let mark = style.saturating_mul(SHADES.len() as u32);
    let mark = mark.saturating_add(shade(step) as u32);
    char::from_u32(FIRST_MARK.saturating_add(mark)).unwrap_or(' ')
}

/// The colour of a frame.
pub(super) fn colour(step: &Step<'_>) -> Color {
    match step.kind {
        None => plain(),
        Some(_) => rgb(style(step).1, SHADES[shade(step)]),
    }
}

/// The colour of what is no code.
pub(super) fn plain() -> Color {
    rgb(PLAIN, 0)
}

fn rgb(hex: &str, by: i8) -> Color {
    let part = |at| u8::from_str_radix(hex.get(at..at + 2).unwrap_or_default(), 16);
    let part = |at| part(at).unwrap_or(0).saturating_add_signed(by);
    (part(1), part(3), part(5)).into()
}

/// A number for each colour, and the colour.
fn style(step: &Step<'_>) -> (u32, &'static str) {
    match (step.waits, step.kind) {
        (true, _) => (1, WAITING.1[0]),
        (false, None) => (0, PLAIN),
        (false, Some(kind)) => (kind.number().saturating_add(2), kind.colours()[0]),
    }
}

/// By name, so that it is the same in every picture.
fn shade(step: &Step<'_>) -> usize {
    let letters = step.name.whole.bytes();
    let sum = letters.fold(0u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    (sum >> 4) as usize % SHADES.len()
}

/// What lies behind the frames.
pub(super) fn ground() -> BackgroundColor {
    BackgroundColor::Flat((0xfb, 0xfb, 0xfb).into())
}

/// The kinds that are in the picture, with their colours.
pub(super) fn legend<'a>(tree: &CallTree, profile: &'a Profile) -> Vec<(&'a str, &'static str)> {
    let kinds: BTreeSet<Kind> = tree.kinds().collect();
    let kinds = kinds.into_iter();
    let kinds = kinds.map(|kind| (kind.name(profile), kind.colours()[0]));
    let waiting = matches!(profile.shown_event, OFF_CPU | WALL);
    let waiting = waiting.then_some((WAITING.0, WAITING.1[0]));
    kinds.chain(waiting).collect()
}

/// Takes the marks out of a picture, and puts a legend between its titles and its frames.
pub(super) fn finish(picture: &str, legend: &[(&str, &str)]) -> String {
    const FRAMES: &str = r#"<svg id="frames" x="10""#;
    let Some((head, frames)) = picture.split_once(FRAMES) else {
        return unmarked(picture);
    };
    let mut out = lowered(head);
    out.push_str(r#"<g id="legend">"#);
    let mut x = 10;
    for (name, colour) in legend {
        let _ = write!(
            out,
            r#"<rect x="{x}" y="{}" width="11" height="11" fill="{colour}"/><text x="{}" y="{LEGEND_Y}">{}</text>"#,
            LEGEND_Y - 10,
            x + 15,
            escaped(name),
        );
        x += 15 + 8 * (name.chars().count() as u32 + 2);
    }
    out.push_str("</g>");
    let _ = write!(out, r#"{FRAMES} y="{ROW}""#);
    out.push_str(&unmarked(frames));
    out
}

/// Makes room for the legend: the picture is higher, and what stands below the frames lower.
fn lowered(head: &str) -> String {
    let height = |text: &str| -> Option<u32> {
        let (_, rest) = text.split_once(r#" height=""#)?;
        rest.split_once('"')?.0.parse().ok()
    };
    let Some(old) = height(head) else {
        return head.to_owned();
    };
    let new = old + ROW;
    let mut out = head
        .replace(
            &format!(r#" height="{old}""#),
            &format!(r#" height="{new}""#),
        )
        .replace(&format!(r#" {old}""#), &format!(r#" {new}""#));
    for id in ["details", "matched"] {
        let Some(at) = out.find(&format!(r#"<text id="{id}""#)) else {
            continue;
        };
        let (before, text) = out.split_at(at);
        let moved = text.split_once(r#" y=""#).and_then(|(start, rest)| {
            let (y, rest) = rest.split_once('"')?;
            let y = y.parse::<f64>().ok()? + f64::from(ROW);
            Some(format!(r#"{before}{start} y="{y:.2}"{rest}"#))
        });
        out = moved.unwrap_or(out);
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn unmarked(text: &str) -> String {
    let is_mark = |letter: char| u32::from(letter) >= FIRST_MARK;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // A frame's text begins where its element does.
    while let Some(at) = rest.find(is_mark) {
        let (before, from) = rest.split_at(at);
        let (marked, behind) = from.split_at(from.chars().next().map_or(0, char::len_utf8));
        out.push_str(before);
        if !before.ends_with('>') {
            out.push_str(marked);
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}
