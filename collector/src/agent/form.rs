//! The forms in which a window is sent.

use super::otlp;
use crate::clickhouse::rows;
use crate::gzip::gzip;
use crate::output::pprof;
use crate::output::pprof::tables::Span;
use crate::profile::Profile;
use flate2::Compression;
use std::io;

/// A form of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// A pprof file, compressed.
    Pprof,
    /// An OTLP request to export profiles, compressed with gzip.
    Otlp,
    /// Rows for ClickHouse: what of them is sent is compressed then.
    Rows,
}

/// A window, of which forms are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) profile: &'a Profile,
    pub(super) window: rows::Window<'a>,
}

impl Source<'_> {
    const fn span(&self) -> Span {
        Span {
            from_ns: self.window.from_ns,
            to_ns: self.window.to_ns,
        }
    }
}

impl Form {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pprof => "pprof",
            Self::Otlp => "otlp",
            Self::Rows => "rows",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Pprof, Self::Otlp, Self::Rows];
        all.into_iter().find(|form| form.name() == name)
    }

    /// A window in this form.
    ///
    /// # Errors
    /// Those of compression into memory: none.
    pub(super) fn encode(self, source: &Source<'_>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            Self::Pprof => pprof::write_message(source.profile, Some(source.span()), &mut bytes)?,
            Self::Otlp => {
                let attributes = source.window.attributes;
                let message = otlp::encode(source.profile, source.span(), attributes);
                bytes = gzip([&*message], Compression::fast())?;
            }
            Self::Rows => bytes = rows::encode(source.profile, &source.window)?,
        }
        Ok(bytes)
    }
}
