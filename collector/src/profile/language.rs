//! Folds a profile to the frames of one language.

use super::{Call, CallId, Frame, Function, Mode, Profile, SourceFrameId};
use crate::intern::Pairs;
use crate::recording::LanguageId;
use std::sync::Arc;

/// A language was asked for that has no frames.
#[derive(Debug, thiserror::Error)]
#[error("no frames of the language {wanted}; {there}")]
pub struct NoLanguage {
    wanted: String,
    there: String,
}

impl Profile {
    /// Leaves only the frames of a language on the stacks; one without any is a note that says so.
    ///
    /// # Errors
    /// [`NoLanguage`].
    pub fn fold_to(&mut self, language: &str) -> Result<(), NoLanguage> {
        let wanted = self.recording.languages.iter();
        let Some(wanted) = wanted.zip(0..).find(|(known, _)| *known == language) else {
            let there = match self.recording.languages.as_slice() {
                [] => "there are none of any interpreter's language".to_owned(),
                some => format!("there are: {}", some.join(", ")),
            };
            let wanted = language.to_owned();
            return Err(NoLanguage { wanted, there });
        };
        let wanted = Mode::Language(LanguageId::new(wanted.1));
        let elsewhere = self.note(format!("[not in {language}]"));
        let (mut stacks, mut known) = (Vec::new(), Pairs::default());
        let none: CallId = known.place(
            &mut stacks,
            Call {
                parent: None,
                frame: elsewhere,
            },
        );
        let mut folded: Vec<Option<CallId>> = Vec::with_capacity(self.stacks.len());
        for call in &self.stacks {
            let parent = call.parent.and_then(|parent| folded[parent.index()]);
            let frame = &self.frames[call.frame.index()];
            let is_its = self.function(frame).mode == wanted;
            let frame = call.frame;
            folded.push(match is_its {
                true => Some(known.place(&mut stacks, Call { parent, frame })),
                false => parent,
            });
        }
        self.stacks = stacks;
        let all = self.samples.iter_mut().chain(&mut self.aside);
        for sample in all.chain(&mut self.remainders) {
            sample.stack = folded[sample.stack.index()].unwrap_or(none);
        }
        Ok(())
    }

    fn note(&mut self, text: String) -> SourceFrameId {
        self.functions.push(Function {
            name: Arc::from(text),
            short: None,
            image: None,
            mode: Mode::Note,
            source: None,
            begins: 0,
        });
        let function = super::FunctionId::next_of(self.functions.len() - 1);
        self.frames.push(Frame::bare(function));
        SourceFrameId::next_of(self.frames.len() - 1)
    }
}
