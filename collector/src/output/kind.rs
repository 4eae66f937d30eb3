//! The kinds of code that pictures tell apart by colour.

use crate::profile::{Function, Mode, Profile};
use crate::recording::LanguageId;
use std::collections::HashSet;

/// What code a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Of a program's own file.
    Program,
    /// Of a library.
    Library,
    /// Of the kernel.
    Kernel,
    /// Of no file: a JIT's, or nobody knows whose.
    Anonymous,
    /// None: a note in the place of frames, or of time.
    Missing,
    /// Of a language that an interpreter runs.
    Language(LanguageId),
}

/// Tells kinds, for one profile.
pub(super) struct Kinds {
    /// For each image whether it is a program.
    programs: Vec<bool>,
}

impl Kinds {
    pub(super) fn of(profile: &Profile) -> Self {
        let processes = profile.recording.processes.iter();
        let executables: HashSet<&str> = processes.map(|one| &*one.executable).collect();
        let images = profile.symbols.images.iter();
        Self {
            programs: images
                .map(|image| executables.contains(&*image.path))
                .collect(),
        }
    }

    pub(super) fn kind(&self, function: &Function) -> Kind {
        match (function.mode, function.image) {
            (Mode::Note, _) => Kind::Missing,
            (Mode::Kernel, _) => Kind::Kernel,
            (Mode::Language(id), _) => Kind::Language(id),
            (Mode::User, None) => Kind::Anonymous,
            (Mode::User, Some(image)) if self.programs[image.index()] => Kind::Program,
            (Mode::User, Some(_)) => Kind::Library,
        }
    }
}
