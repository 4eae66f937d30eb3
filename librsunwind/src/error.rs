//! Why a client, a language or what one of them asked for was refused.

/// What was wrong. In C it is the negative of [`Error::number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A null pointer where there must be something, or a value that is not allowed.
    Null,
    /// All clients, languages or ranges are taken.
    Full,
    /// No client or language of that number is registered (any more).
    NoClient,
    /// A callback may not wait for callbacks.
    InCallback,
    /// Not a thread of this process: the child of a vfork, or a raw clone that shares its parent's
    /// thread-local memory.
    ForeignThread,
    /// No memory for the thread's stack and frames, or for the process's tables.
    Memory,
    /// Memory that cannot be read.
    Unreadable,
    /// What a walk may take for languages has been taken.
    Budget,
    /// A callback has not returned for some seconds.
    StillRuns,
}

impl Error {
    const ALL: [Self; 9] = [
        Self::Null,
        Self::Full,
        Self::NoClient,
        Self::InCallback,
        Self::ForeignThread,
        Self::Memory,
        Self::Unreadable,
        Self::Budget,
        Self::StillRuns,
    ];

    /// Its number, as in `errno.h`.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Null => libc::EINVAL,
            Self::Full => libc::EBUSY,
            Self::NoClient => libc::ENOENT,
            Self::InCallback => libc::EDEADLK,
            Self::ForeignThread => libc::ENOTSUP,
            Self::Memory => libc::ENOMEM,
            Self::Unreadable => libc::EFAULT,
            Self::Budget => libc::EAGAIN,
            Self::StillRuns => libc::ETIMEDOUT,
        }
    }

    /// What a C function gives for it: the negative of its number.
    #[must_use]
    pub const fn result(self) -> i32 {
        self.number().wrapping_neg()
    }

    /// The error of that number.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.number() == number)
    }

    /// What is wrong and what to do, for people.
    #[must_use]
    pub const fn words(self) -> &'static core::ffi::CStr {
        match self {
            Self::Null => c"a null pointer, an empty range, or a value that the header does not allow",
            Self::Full => c"all 62 clients, or 16 languages, or 256 ranges of code are taken: take one back first; or a walk has all the frames that it may have",
            Self::NoClient => c"no such client, language or region; it was unregistered or has ended, or never was",
            Self::InCallback => {
                c"a callback cannot unregister: it would wait for itself; do it after the callback has returned"
            }
            Self::ForeignThread => {
                c"not a thread that this can be asked on: the child of a vfork, or a raw clone without thread-local memory of its own"
            }
            Self::Memory => c"no memory for the thread's unwinding stack, or for tables",
            Self::Unreadable => c"memory that cannot be read",
            Self::Budget => c"one walk may not read, or have, as much as that: answer with the frames there are; nor a thread as many labels",
            Self::StillRuns => {
                c"a callback has not returned for some seconds, so nothing was taken back; try again"
            }
        }
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(self.words().to_str().unwrap_or_default())
    }
}

impl core::error::Error for Error {}
