//! Places in the lists of a [`Recording`](super::Recording).

use crate::intern::index;

index!(
    /// Of [`Recording::processes`].
    ProcessId
);
index!(
    /// Of [`Recording::threads`].
    ThreadId
);
index!(
    /// Of [`Recording::modules`].
    ModuleId
);
index!(
    /// Of [`Recording::languages`].
    LanguageId
);
index!(
    /// Of [`Recording::codes`].
    CodeId
);
index!(
    /// Of [`Recording::frames`].
    FrameId
);
index!(
    /// Of [`Recording::stacks`].
    StackId
);
