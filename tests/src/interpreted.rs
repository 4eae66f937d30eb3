//! Stacks of interpreters' functions among native frames, as a recording has them.

use crate::assert_measured;
use collector::recording::{RawFrame, RawSample, Recording};

/// A frame, as tests compare them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Native code.
    Native,
    /// A language's function.
    Function {
        /// What it is called.
        name: String,
        /// Its file; empty if it has none.
        file: String,
        /// The line that it is at; 0 if it is not known.
        line: u32,
    },
    /// Anything else.
    Other,
}

impl Seen {
    /// A function's name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Function { name, .. } => Some(name),
            _ => None,
        }
    }
}

/// A sample's stack without the kernel's part, outermost first.
#[must_use]
pub fn stack(recording: &Recording, sample: &RawSample) -> Vec<Seen> {
    let is_kernels = |frame: &RawFrame| matches!(frame, RawFrame::Kernel(_));
    let seen = |frame| match frame {
        RawFrame::Code { .. } => Seen::Native,
        RawFrame::Language {
            code: Some(code),
            position,
        } => {
            let code = &recording.codes[code.index()];
            Seen::Function {
                name: code.name.to_string(),
                file: code.file.to_string(),
                line: code.line(position),
            }
        }
        _ => Seen::Other,
    };
    let frames = recording.walk(sample.stack);
    let mut frames: Vec<Seen> = frames.filter(|one| !is_kernels(one)).map(seen).collect();
    frames.reverse();
    frames
}

/// The stacks in which a function is, with their weight.
#[must_use]
pub fn stacks_with(recording: &Recording, function: &str) -> Vec<(Vec<Seen>, u64)> {
    let samples = recording.samples.iter();
    let all = samples.map(|sample| (stack(recording, sample), sample.weight));
    all.filter(|(frames, _)| frames.iter().any(|frame| frame.name() == Some(function)))
        .collect()
}

/// The names of a stack's functions.
#[must_use]
pub fn names(frames: &[Seen]) -> Vec<&str> {
    frames.iter().filter_map(Seen::name).collect()
}

/// Within `judge`: at least 98 % of the stacks are right, and there are enough.
///
/// # Panics
/// If not.
#[track_caller]
pub fn assert_right(stacks: &[(Vec<Seen>, u64)], is_right: impl Fn(&[Seen]) -> bool, what: &str) {
    let right = stacks.iter().filter(|(frames, _)| is_right(frames)).count();
    let wrong = stacks.iter().find(|(frames, _)| !is_right(frames));
    assert_measured!(
        right > 50 && right * 50 > stacks.len() * 49,
        "{what}: {right} of {}, {:?}",
        stacks.len(),
        wrong.map(|(frames, _)| names(frames))
    );
}
