//! Which of the program's own functions a stack is in, and what that called: of waiting the first
//! question, since the innermost functions are the kernel's.
//!
//! A program's own is what is in its file, but the standard libraries that are linked or inlined
//! there; and what is in its language, but what is installed with that. Where that language has own
//! functions on a stack, the native ones are its interpreter's.

use crate::profile::{CallId, Frame, Kind, Kinds, Mode, Names, PREEMPTED, Profile, is_root};

/// A function and the one that it called, by number.
pub(super) type Pair = (u32, Option<u32>);

/// Finds them, for one profile.
pub(super) struct Own<'a> {
    profile: &'a Profile,
    kinds: Kinds,
}

/// How much a frame is the program's; of what is the most, the innermost counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The kernel's, or no function.
    Foreign,
    /// The C library, or the standard library of a language.
    Standard,
    Library,
    Native,
    Language,
}

impl<'a> Own<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        Self {
            profile,
            kinds: Kinds::of(profile),
        }
    }

    /// The innermost own function of a stack; without any, the innermost that is the least foreign.
    pub(super) fn find(&self, stack: CallId) -> Pair {
        let leaf = self.profile.stacks[stack.index()].frame;
        let leaf = self.profile.frames[leaf.index()].function;
        if &*self.profile.functions[leaf.index()].name == PREEMPTED {
            return (leaf.number(), None); // wherever it was
        }
        let mut found: Option<(Rank, u32, Option<u32>)> = None;
        let mut below = None;
        for frame in self.profile.walk(stack) {
            let rank = self.rank(frame);
            if found.is_none_or(|(best, ..)| rank > best) {
                found = Some((rank, frame.function.number(), below));
            }
            // The way into the kernel says nothing.
            if !self.is_entry(frame) || below.is_none() {
                below = Some(frame.function.number());
            }
        }
        match found {
            Some((Rank::Foreign, ..)) | None => (leaf.number(), None),
            Some((_, function, called)) => (function, called),
        }
    }

    fn rank(&self, frame: &Frame) -> Rank {
        let function = self.profile.function(frame);
        let file = frame.file.as_deref().unwrap_or_default();
        match self.kinds.kind(function) {
            Kind::Kernel | Kind::Missing => Rank::Foreign,
            _ if is_root(&function.name) => Rank::Standard,
            Kind::Language(_) if is_installed(function.source.as_deref().unwrap_or(file)) => {
                Rank::Library
            }
            Kind::Language(_) => Rank::Language,
            _ if is_standard(function.called(Names::Short), file) => Rank::Standard,
            Kind::Program | Kind::Anonymous => Rank::Native,
            Kind::Library if is_c_library(self.profile.image_name(function)) => Rank::Standard,
            Kind::Library => Rank::Library,
        }
    }

    fn is_entry(&self, frame: &Frame) -> bool {
        let function = self.profile.function(frame);
        function.mode == Mode::Kernel && ENTRIES.iter().any(|it| function.name.starts_with(it))
    }
}

/// What every system call goes through.
const ENTRIES: [&str; 4] = ["entry_SYSCALL", "do_syscall_64", "x64_sys_call", "asm_"];

fn is_c_library(file: &str) -> bool {
    [
        "libc.so",
        "libpthread.so",
        "ld-linux",
        "ld-musl",
        "libc-2.",
        "[vdso]",
    ]
    .iter()
    .any(|name| file.starts_with(name))
}

/// Of C++, Rust and Go, whose standard libraries become part of programs.
fn is_standard(name: &str, file: &str) -> bool {
    const NAMES: [&str; 11] = [
        "std::",
        "core::",
        "alloc::",
        "<std::",
        "<core::",
        "<alloc::",
        "__gnu_cxx::",
        "runtime.",
        "internal/",
        "sync.(",
        "time.Sleep",
    ];
    const FILES: [&str; 3] = ["/rustc/", "/usr/include/c++/", "/usr/local/go/src/"];
    NAMES.iter().any(|begin| name.starts_with(begin))
        || FILES.iter().any(|begin| file.starts_with(begin))
        || file.contains("/rustlib/src/")
}

/// Whether a source file of a language came with it, or as a package.
fn is_installed(file: &str) -> bool {
    file.starts_with("node:")
        || file.starts_with("<frozen")
        || file.contains("/lib/python")
        || file.contains("/node_modules/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_libraries_are_nobodys_own() {
        assert!(is_standard("std::this_thread::sleep_for", "a.cpp"));
        assert!(is_standard(
            "wait<…>",
            "/rustc/0123/library/std/src/sync/mod.rs"
        ));
        assert!(!is_standard("stdio_loop", "/home/me/a.c"));
        assert!(is_installed("/usr/lib/python3.11/threading.py"));
        assert!(!is_installed("/home/me/server.py"));
        assert!(is_c_library("libc.so.6") && !is_c_library("libcurl.so.4"));
    }
}
