//! Why the library could not be brought into a process, or not be taken away.

use nix::errno::Errno;
use nix::sys::signal::Signal;

/// See the module. Each sentence goes on after the name of the process and what was to be done.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A seccomp filter.
    #[error("it runs under a seccomp filter, which may kill it for a call of ours")]
    Filtered,
    /// Another tracer.
    #[error("process {0} traces it (a debugger, strace): end that first")]
    Traced(u32),
    /// By a signal.
    #[error("it is stopped: kill -CONT lets it go on")]
    Stopped,
    /// The first thread has ended.
    #[error("its first thread has ended, and the kernel opens its memory to nobody")]
    Zombie,
    /// It has a library of ours.
    #[error("it was started under rsunwind, and unwinds itself already")]
    Preloaded,
    /// Another recording.
    #[error("rsunwind {0} records it from inside: one does at a time")]
    Taken(i32),
    /// Another one, which comes or goes.
    #[error("another rsunwind is about to record it from inside: one does at a time")]
    Contested,
    /// Another build's.
    #[error(
        "another version of rsunwind was killed in it and left its library: that version can take it away, or a restart of the program"
    )]
    OtherVersion,
    /// Not of this machine.
    #[error("its code is not of 64 bits")]
    Machine,
    /// CET.
    #[error(
        "it has shadow stacks, which a call of ours that failed would leave out of step; GLIBC_TUNABLES=glibc.cpu.x86_shstk=off starts it without"
    )]
    ShadowStacks,
    /// Nothing that `fs` points to.
    #[error("its threads have no thread pointer")]
    NoThreadPointer,
    /// No system call instruction.
    #[error("it has no vDSO")]
    NoVdso,
    /// SIGURG is the program's.
    #[error("it has a handler of its own for SIGURG (as Go programs have)")]
    OwnHandler,
    /// The same, meanwhile.
    #[error("it has set an action for SIGURG meanwhile, and may yet set ours again")]
    Replaced,
    /// A signal might overflow it.
    #[error("a thread of it has little room left on its stack; --how inside does not look at that")]
    Narrow,
    /// A stop would change that.
    #[error("it ignores SIGTRAP, which steps of ours would end")]
    IgnoresTrap,
    /// All sleep.
    #[error(
        "each of its threads sleeps in a call that a stop could end early, waits for a child of vfork, or has a seccomp filter"
    )]
    NobodyToStop,
    /// `ptrace`.
    #[error("a thread of it could not be stopped: {}{}", .0.desc(), hint(*.0))]
    Ptrace(Errno),
    /// `/proc/PID/mem`.
    #[error("its memory cannot be written: {0}")]
    Memory(String),
    /// A system call in it.
    #[error("a system call in it failed: {}", .0.desc())]
    Call(Errno),
    /// Our own failure.
    #[error("our own code ended at {0:#x}, where it should not have")]
    Astray(u64),
    /// Our own failure.
    #[error("our own code was ended by {0} at {1:#x}")]
    Faulted(Signal, u64),
    /// The library's settings or file.
    #[error("the library that is brought in is damaged")]
    Library,
    /// The library says why.
    #[error("{what}: {}", .errno.desc())]
    Begin {
        /// What could not be done.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// perf events.
    #[error("perf events are refused: {}{}", .0.desc(), events_hint(*.0))]
    Events(Errno),
    /// A thread stays in the handler.
    #[error("a thread of it has not come out of our handler; what is left does nothing")]
    Inside,
    /// It is gone.
    #[error("it has ended")]
    Ended,
}

impl Refusal {
    /// What a function of the library gives if it did not succeed.
    pub(super) fn of_library(result: u64) -> Self {
        let what = match result >> 32 {
            2 => "the session cannot be reached from there (another mount namespace, chroot)",
            3 => "there was no memory",
            5 if result as i32 == Errno::EBUSY as i32 => return Self::Replaced,
            4 => "the file for samples cannot be made there",
            5 => "the signal's action could not be set",
            _ => return Self::Library,
        };
        let errno = Errno::from_raw(result as i32);
        Self::Begin { what, errno }
    }
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM => " (as root it may be; kernel.yama.ptrace_scope is to be 0 otherwise)",
        _ => "",
    }
}

fn events_hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EACCES | Errno::EPERM => {
            " (as root they are not; kernel.perf_event_paranoid of 2 is enough)"
        }
        Errno::EMFILE => " (each thread takes a descriptor: ulimit -n)",
        Errno::EINVAL => " (before Linux 5.13 they would go on in the program that it starts next)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_says_what_failed() {
        let said = Refusal::of_library(4 << 32 | Errno::ENOSPC as u64).to_string();
        assert!(
            said.contains("file for samples") && said.contains("space"),
            "{said}"
        );
        assert!(Refusal::of_library(1 << 32).to_string().contains("damaged"));
        let said = Refusal::Ptrace(Errno::EPERM).to_string();
        assert!(said.contains("as root"), "{said}");
    }
}
