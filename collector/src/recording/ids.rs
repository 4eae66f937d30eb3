//! Places in the lists of a [`Recording`](super::Recording).

use crate::intern::index;

index!(
    /// Of [`Recording::processes`](super::Recording::processes).
    ProcessId
);
index!(
    /// Of [`Recording::threads`](super::Recording::threads).
    ThreadId
);
index!(
    /// Of [`Recording::modules`](super::Recording::modules).
    ModuleId
);
index!(
    /// Of [`Recording::languages`](super::Recording::languages).
    LanguageId
);
index!(
    /// Of [`Recording::codes`](super::Recording::codes).
    CodeId
);
index!(
    /// Of [`Recording::frames`](super::Recording::frames).
    FrameId
);
index!(
    /// Of [`Recording::stacks`](super::Recording::stacks).
    StackId
);
index!(
    /// Of [`Recording::labels`](super::Recording::labels).
    LabelsId
);
