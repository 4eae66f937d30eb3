//! Which functions threads begin in: a stack whose outermost frame is one of them is complete,
//! whatever the walk believed.

/// Names under which the C libraries, the dynamic linker, and the coroutine libraries that are met
/// begin a thread of execution.
const ROOTS: [&str; 26] = [
    // Programs and the dynamic linker.
    "_start",
    "_dl_start_user",
    "_dlstart",
    // Threads: glibc, musl.
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "__clone_internal",
    "thread_start",
    "start",
    "start_c11",
    // Of musl, whose tables reach no further than the program's own code: it calls main, and exit.
    "libc_start_main_stage2",
    // A thread's start routine in C libraries without symbols, known by its table (see
    // `symbolize`).
    crate::symbolize::THREAD_ENTRY,
    // Coroutines: glibc's makecontext, Boost.Context, libco, minicoro.
    "__start_context",
    "make_fcontext",
    "jump_fcontext",
    "crash",
    "_mco_wrap_main",
    // Go: goroutines, threads, and what a thread does when it leaves a goroutine for another one.
    "runtime.goexit",
    "runtime.mcall",
    "runtime.rt0_go",
    "_rt0_amd64",
    "_rt0_amd64_linux",
    "_rt0_arm64_linux",
    "runtime.mstart",
    "runtime.clone",
];

/// What Go's linker adds to names of functions in assembly, in its symbols only.
const IN_ASSEMBLY: &str = ".abi0";

/// Whether threads begin in a function of that name.
#[must_use]
pub fn is_root(name: &str) -> bool {
    ROOTS.contains(&name.strip_suffix(IN_ASSEMBLY).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_and_start_thread_are_no_roots() {
        assert!(is_root("_start") && is_root("clone3"));
        assert!(is_root("runtime.mstart") && is_root("runtime.mstart.abi0"));
        for name in ["main", "__libc_start_main", "start_thread", "_start2", ""] {
            assert!(!is_root(name), "{name}");
        }
    }
}
