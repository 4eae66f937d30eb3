//! The forms in which a window is sent.

use super::otlp;
use crate::output::pprof;
use crate::output::pprof::proto::Profile;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::io::{self, Write as _};

/// A form of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// A pprof file, compressed.
    Pprof,
    /// An OTLP request to export profiles, compressed with gzip.
    Otlp,
}

impl Form {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pprof => "pprof",
            Self::Otlp => "otlp",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [Self::Pprof, Self::Otlp].into_iter();
        all.into_iter().find(|form| form.name() == name)
    }

    /// A window in this form.
    ///
    /// # Errors
    /// Those of compression into memory: none.
    pub(super) fn encode(
        self,
        window: &Profile,
        attributes: &BTreeMap<String, String>,
    ) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self {
            Self::Pprof => pprof::write_message(window, &mut bytes)?,
            Self::Otlp => {
                let mut gzip = GzEncoder::new(&mut bytes, Compression::default());
                gzip.write_all(&otlp::encode(window, attributes))?;
                gzip.finish()?;
            }
        }
        Ok(bytes)
    }
}
