//! What a row stands for, as it is asked for: one of a few, and of labels perhaps a key.

use super::By;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

/// What a row stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Which kind.
    pub by: By,
    /// Of [`By::Label`] the only key that counts.
    pub label: Option<String>,
}

impl From<By> for Rows {
    fn from(by: By) -> Self {
        Self { by, label: None }
    }
}

/// Reads it from the command line.
#[derive(Clone, Debug)]
pub(super) struct Parser;

impl TypedValueParser for Parser {
    type Value = Rows;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Rows, Error> {
        let key = value.to_str().and_then(|text| text.strip_prefix("label="));
        if let Some(key) = key.filter(|key| !key.is_empty()) {
            return Ok(Rows {
                by: By::Label,
                label: Some(key.to_owned()),
            });
        }
        let by = EnumValueParser::<By>::new().parse_ref(cmd, arg, value)?;
        Ok(by.into())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        // Its own are borrowed from it.
        let values: Vec<_> = EnumValueParser::<By>::new().possible_values()?.collect();
        Some(Box::new(values.into_iter()))
    }
}
