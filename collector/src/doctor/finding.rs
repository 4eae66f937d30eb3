//! One thing that was looked at.

use crate::visible::visible;
use std::fmt;

/// How it stands with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It works.
    Ok,
    /// In part.
    Less,
    /// Not at all.
    No,
}

/// What was looked at, how it stands, and what would change that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) subject: &'static str,
    pub(super) state: State,
    pub(super) says: String,
    pub(super) cure: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, says: impl Into<String>) -> Self {
        let (state, says, cure) = (State::Ok, says.into(), None);
        Self {
            subject,
            state,
            says,
            cure,
        }
    }

    pub(super) fn less(subject: &'static str, says: impl Into<String>, cure: &str) -> Self {
        let cure = (!cure.is_empty()).then(|| cure.to_owned());
        Self {
            state: State::Less,
            cure,
            ..Self::ok(subject, says)
        }
    }

    pub(super) fn no(subject: &'static str, says: impl Into<String>, cure: &str) -> Self {
        Self {
            state: State::No,
            ..Self::less(subject, says, cure)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Ok => "ok",
            State::Less => "less",
            State::No => "no",
        };
        writeln!(
            f,
            "  {state:<4}  {:<17} {}",
            self.subject,
            visible(&self.says)
        )?;
        match &self.cure {
            Some(cure) => writeln!(f, "  {:<4}  {:<17} -> {}", "", "", visible(cure)),
            None => Ok(()),
        }
    }
}

/// A heading and what was found.
pub(super) fn section(heading: &str, findings: &[Finding]) -> String {
    let lines = findings.iter().map(ToString::to_string);
    format!("{heading}\n{}", lines.collect::<String>())
}
