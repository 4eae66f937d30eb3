//! The forms in which a window is sent.

use super::otlp;
use crate::clickhouse::rows;
use crate::output::pprof;
use crate::output::pprof::proto::Profile;
use crate::profile;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::cell::OnceCell;
use std::io::{self, Write as _};

/// A form of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// A pprof file, compressed.
    Pprof,
    /// An OTLP request to export profiles, compressed with gzip.
    Otlp,
    /// Rows for ClickHouse.
    Rows,
}

/// A window, of which forms are made.
#[derive(Debug)]
pub(super) struct Source<'a> {
    profile: &'a profile::Profile,
    window: rows::Window<'a>,
    /// Of which some forms are made.
    pprof: OnceCell<Profile>,
}

impl<'a> Source<'a> {
    pub(super) const fn new(profile: &'a profile::Profile, window: rows::Window<'a>) -> Self {
        Self {
            profile,
            window,
            pprof: OnceCell::new(),
        }
    }

    fn pprof(&self) -> &Profile {
        self.pprof.get_or_init(|| {
            let window = &self.window;
            let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            Profile {
                time_nanos: signed(window.from_ns),
                duration_nanos: signed(window.to_ns.saturating_sub(window.from_ns)),
                ..pprof::message(self.profile)
            }
        })
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
            Self::Pprof => pprof::write_message(source.pprof(), &mut bytes)?,
            Self::Otlp => {
                let mut gzip = GzEncoder::new(&mut bytes, Compression::fast());
                gzip.write_all(&otlp::encode(source.pprof(), source.window.attributes))?;
                gzip.finish()?;
            }
            Self::Rows => bytes = rows::packed(source.profile, &source.window)?,
        }
        Ok(bytes)
    }
}
