//! Why a client was refused.

/// What was wrong. In C it is the negative of [`Error::number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A null pointer where there must be something.
    Null,
    /// All clients are taken.
    Full,
    /// No client of that number is registered (any more).
    NoClient,
    /// A callback may not wait for callbacks.
    InCallback,
    /// Not a thread of this process: the child of a vfork, or a raw clone that shares its parent's thread-local memory.
    ForeignThread,
    /// No memory for the thread's stack and frames, or for the process's tables.
    Memory,
}

impl Error {
    const ALL: [Self; 6] = [
        Self::Null,
        Self::Full,
        Self::NoClient,
        Self::InCallback,
        Self::ForeignThread,
        Self::Memory,
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
        }
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
            Self::Null => c"a callback and places for results must not be null",
            Self::Full => c"all 62 clients are taken; unregister one first",
            Self::NoClient => c"no such client; it was unregistered, or never registered",
            Self::InCallback => {
                c"a callback cannot unregister a client: it would wait for itself; do it after the callback has returned"
            }
            Self::ForeignThread => {
                c"not a thread that this can be asked on: the child of a vfork, or a raw clone without thread-local memory of its own"
            }
            Self::Memory => c"no memory for the thread's unwinding stack",
        }
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(self.words().to_str().unwrap_or_default())
    }
}

impl core::error::Error for Error {}
