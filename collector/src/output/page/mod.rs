//! A page that a browser shows by itself, with the profile inside: flame graphs, a timeline, a heat
//! map and a table.
//!
//! The page is fixed but for its data, which are base64: nothing that a program calls itself can
//! stand in it as anything else. Its scripts put names on a canvas or in text nodes only, and its
//! policy lets it load nothing.
//!
//! Not here: what the data are ([`data`]), and what is shown of them (the scripts beside this
//! file).

mod data;
#[cfg(test)]
mod tests;
mod tree;

use super::{Format, Holds, Options};
use crate::profile::{Profile, palette};
use base64::prelude::BASE64_STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{self, Write};

pub(super) struct Page;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// In the order in which they use each other.
const SCRIPTS: [&str; 7] = [
    include_str!("data.js"),
    include_str!("tree.js"),
    include_str!("look.js"),
    include_str!("flame.js"),
    include_str!("times.js"),
    include_str!("table.js"),
    include_str!("main.js"),
];

impl Format for Page {
    fn name(&self) -> &'static str {
        "html"
    }

    fn about(&self) -> &'static str {
        "page to look around in, for a browser"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".html", ".htm"]
    }

    fn holds(&self) -> Holds {
        Holds::EveryEvent
    }

    fn write(&self, profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
        let data = data::encode(profile, options)?;
        for piece in PAGE.split_inclusive("@@") {
            let (text, part) = match piece.strip_suffix("@@") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            match (part, text) {
                (true, "STYLE") => out.write_all(STYLE.as_bytes())?,
                (true, "DATA") => write_compressed(&data, out)?,
                (true, "SCRIPT") => {
                    write!(out, "'use strict';\nconst PALETTE = {};\n", palette())?;
                    for script in SCRIPTS {
                        out.write_all(script.as_bytes())?;
                    }
                }
                _ => out.write_all(text.as_bytes())?,
            }
        }
        Ok(())
    }
}

/// Deflated, in base64.
fn write_compressed(data: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let base64 = EncoderWriter::new(out, &BASE64_STANDARD);
    let mut deflate = DeflateEncoder::new(base64, Compression::default());
    deflate.write_all(data)?;
    deflate.finish()?.finish()?;
    Ok(())
}
