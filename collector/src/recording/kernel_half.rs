//! How the kernel's half of a sample was come by: the classes.
//!
//! Not here: who puts samples into them (`correlate`).

/// How the kernel's half of a sample was come by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelHalf {
    /// The sample was taken in user mode.
    #[default]
    None,
    /// Taken in the kernel, joined with the user stack of the same entry; ip and sp agree, or it
    /// was the return from a handler of the program's to there. The first of its entry.
    Merged,
    /// Likewise, a further one of the same entry: the same user stack again.
    Reused,
    /// Taken in a call that holds our signal back (a wrapper of ours, or one of libc that blocks
    /// all signals): the user stack was taken right behind it, and the kernel's is shown below the
    /// caller of that call. By cursor, ip and sp it was that call's own doing.
    Shielded,
    /// The thread went on without a user stack, because our signal was blocked or the walk left
    /// out; one was taken elsewhere later, or none. The kernel's stack stands alone.
    Late,
    /// Taken while our own code ran: it is ours, not the program's. The kernel's stack stands
    /// alone.
    Profiler,
    /// The thread ended, and took no user stack any more. The kernel's stack stands alone.
    Exit,
    /// The newest of its thread, which is not known to have ended: it was killed there, or is there
    /// still. The kernel's stack stands alone.
    Orphan,
}

impl KernelHalf {
    /// Its name in accounts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Merged => "merged",
            Self::Reused => "reused",
            Self::Shielded => "shielded",
            Self::Late => "late",
            Self::Profiler => "profiler",
            Self::Exit => "exit",
            Self::Orphan => "orphan",
        }
    }

    /// Whether the kernel's stack stands alone.
    #[must_use]
    pub const fn is_alone(self) -> bool {
        matches!(
            self,
            Self::Late | Self::Profiler | Self::Exit | Self::Orphan
        )
    }
}
