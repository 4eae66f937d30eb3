//! Stacks with frames of interpreters, as tests write them down.

use collector::profile::{Mode, Profile, Sample};

/// A stack from main on, outermost first; frames of the language with file and line.
#[must_use]
pub fn stacks(profile: &Profile) -> Vec<(Vec<String>, u64)> {
    let samples = profile.samples.iter();
    let stack = |sample: &Sample| {
        let frames = profile.walk(sample.stack).filter_map(|frame| {
            let function = profile.function(frame);
            match function.mode {
                Mode::Language(id) => {
                    let language = &profile.recording.languages[id.index()];
                    let file = frame.file.as_deref().unwrap_or("");
                    Some(format!(
                        "{language} {} {file}:{}",
                        function.name, frame.line
                    ))
                }
                Mode::User | Mode::Note => Some(function.name.to_string()),
                Mode::Kernel => None,
            }
        });
        let mut names: Vec<String> = frames.collect();
        names.reverse();
        let from_main = names.iter().position(|name| name == "main").unwrap_or(0);
        (names.split_off(from_main), sample.weight)
    };
    samples.map(stack).collect()
}

/// Asserts that all samples in the function `work`, of which there must be some, have just these
/// callers.
///
/// # Panics
/// If not.
#[track_caller]
pub fn assert_stacks(profile: &Profile, callers: &[&str]) {
    let at_work: Vec<_> = stacks(profile)
        .into_iter()
        .filter_map(|(mut names, weight)| {
            let work = names.iter().position(|name| name == "work")?;
            names.truncate(work);
            Some((names, weight))
        })
        .collect();
    let all: u64 = at_work.iter().map(|(_, weight)| weight).sum();
    let wrong = at_work.iter().find(|(names, _)| names != callers);
    assert!(all > 20, "{all}");
    assert!(wrong.is_none(), "{wrong:?}");
}
