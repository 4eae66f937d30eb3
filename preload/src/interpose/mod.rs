//! Every function of the host that this library stands in front of, by what it guards:
//!
//! | file | functions | guards |
//! |---|---|---|
//! | `threads` | `pthread_create` `thrd_create` | every thread is armed, with our signal unblocked |
//! | `fork` | (atfork handlers) `_Fork` | a child takes nothing of its parent's for its own |
//! | `exec` | `execve` `execv` `execvp` `execvpe` `fexecve` `execveat` `execl` `execle` `execlp` `posix_spawn` `posix_spawnp` | no sample kills the next program; it is profiled too |
//! | `exit` | `_exit` `_Exit` `quick_exit` | accounts are closed |
//! | `signals` | `sigaction` `signal` `bsd_signal` `sysv_signal` `__sysv_signal` `sigset` `sigignore` `profil` `moncontrol` … | the program's own SIGPROF |
//! | `masks` | `pthread_sigmask` `sigprocmask` `sigsuspend` `ppoll` `pselect` `epoll_pwait` `signalfd` `sigpending` `sigblock` `sigpause` … | our signal is never blocked, and programs read back what they set |
//! | `handlers` | (the program's handlers of other signals) `pthread_cancel` | our signal is let in where a call held it back |
//! | `waits` | `sigwait` `sigwaitinfo` `sigtimedwait` | samples are not taken for what the program waits for |
//! | `shield` | `poll` `select` `epoll_wait` `nanosleep` `sleep` `sem_timedwait` `recv` `write` … | no EINTR, early wake-up or short count that is ours |
//! | `reads` | `read` `pread` … | no short count that is ours |
//! | `syscalls` | `syscall` | the same of calls by number; our signal is not blocked by number either |
//! | `strict` | `prctl` | no system call of ours kills who has given them up |
//! | `unload` | `dlclose` | no table is read while it is unmapped |
//!
//! The end of a thread is learnt from a thread-specific key (`rsunwind::thread::end`).
//!
//! Never `dlopen` or `dlsym`: libc resolves `$ORIGIN` and RUNPATH by their caller.

mod cancel;
mod exec;
mod exit;
pub mod fork;
mod frame;
pub mod handlers;
mod masks;
mod reads;
mod shield;
mod signals;
mod strict;
pub mod syscalls;
mod threads;
mod unload;
mod waits;
