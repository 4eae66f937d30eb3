//! Which functions threads begin in: a stack whose outermost frame is one of them is complete, whatever the walk believed.

/// Names under which the C libraries, the dynamic linker, and the coroutine libraries that are met begin a thread of execution.
const ROOTS: [&str; 27] = [
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
    // A thread's start routine in C libraries without symbols, known by its table (see `symbolize`).
    crate::symbolize::THREAD_ENTRY,
    // Coroutines: glibc's makecontext, Boost.Context, libco, minicoro.
    "__start_context",
    "make_fcontext",
    "jump_fcontext",
    "crash",
    "_mco_wrap_main",
    // Go.
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.rt0_go",
    "runtime.rt0_go.abi0",
    "_rt0_amd64",
    "_rt0_amd64_linux",
    "_rt0_arm64_linux",
    "runtime.mstart",
    "runtime.clone",
    "runtime.clone.abi0",
];

/// Whether threads begin in a function of that name.
#[must_use]
pub fn is_root(name: &str) -> bool {
    ROOTS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_and_start_thread_are_no_roots() {
        assert!(is_root("_start") && is_root("clone3"));
        for name in ["main", "__libc_start_main", "start_thread", "_start2", ""] {
            assert!(!is_root(name), "{name}");
        }
    }
}
