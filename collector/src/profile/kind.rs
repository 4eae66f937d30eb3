//! The kinds of code that pictures tell apart by colour: their names and colours.

use super::{Function, Mode, Profile};
use crate::recording::LanguageId;
use serde_json::{Value, json};
use std::collections::HashSet;

/// On light and on dark ground.
pub(crate) type Colours = [&'static str; 2];

/// What they are called, by number; from there on they are languages.
const KINDS: [(&str, Colours); 5] = [
    ("missing frames", ["#c9c9c9", "#5a5a5a"]),
    ("program", ["#f2b266", "#93601d"]),
    ("library", ["#93c98e", "#3d763f"]),
    ("kernel", ["#ea8f88", "#9b423e"]),
    ("JIT or unknown code", ["#cba9e0", "#70508a"]),
];
const LANGUAGES: [Colours; 4] = [
    ["#84b8ee", "#2f68a5"],
    ["#e6d35c", "#7d701a"],
    ["#7fd0ca", "#297973"],
    ["#eaa0c8", "#8d4873"],
];
/// Of any code that waits.
pub(crate) const WAITING: (&str, Colours) = ("waiting", ["#b3c6da", "#3f566d"]);

/// What code a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
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

impl Kind {
    /// Its number in the page.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Missing => 0,
            Self::Program => 1,
            Self::Library => 2,
            Self::Kernel => 3,
            Self::Anonymous => 4,
            Self::Language(id) => id.number().saturating_add(KINDS.len() as u32),
        }
    }

    /// What it is called.
    pub(crate) fn name(self, profile: &Profile) -> &str {
        match self {
            Self::Language(id) => &profile.recording.languages[id.index()],
            _ => KINDS[self.number() as usize].0,
        }
    }

    /// Its colours; several languages may have the same.
    pub(crate) const fn colours(self) -> Colours {
        match self {
            Self::Language(id) => LANGUAGES[id.index() % LANGUAGES.len()],
            _ => KINDS[self.number() as usize].1,
        }
    }
}

/// All names and colours, for the page's scripts.
pub(crate) fn palette() -> Value {
    json!({
        "names": KINDS.map(|(name, _)| name),
        "kinds": KINDS.map(|(_, colours)| colours),
        "languages": LANGUAGES,
        "waiting": WAITING.1,
    })
}

/// Tells kinds, for one profile.
pub(crate) struct Kinds {
    /// For each image whether it is a program.
    programs: Vec<bool>,
}

impl Kinds {
    pub(crate) fn of(profile: &Profile) -> Self {
        let processes = profile.recording.processes.iter();
        let executables: HashSet<&str> = processes.map(|one| &*one.executable).collect();
        let images = profile.symbols.images.iter();
        Self {
            programs: images
                .map(|image| executables.contains(&*image.path))
                .collect(),
        }
    }

    pub(crate) fn kind(&self, function: &Function) -> Kind {
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
