//! Every function of the program that this library stands in front of, by what it guards:
//!
//! | file | functions | guards |
//! |---|---|---|
//! | `threads` | `pthread_create` `thrd_create` | every thread is armed, with our signal unblocked |
//! | `fork` | (atfork handlers) `_Fork` | a child takes nothing of its parent's for its own |
//! | `exec` | `execve` `execv` `execvp` `execvpe` `fexecve` `execveat` `execl` `execle` `execlp` `posix_spawn` `posix_spawnp` | no sample kills the next program; it is profiled too |
//! | `children` | `wait` `waitpid` `wait3` `wait4` | what each child was charged until its end is recorded |
//! | `exit` | `_exit` `_Exit` `quick_exit` | accounts are closed |
//! | `signals` | `sigaction` `signal` `bsd_signal` `sysv_signal` `__sysv_signal` `sigset` `sigignore` `profil` `moncontrol` … | the program's own SIGPROF |
//! | `masks` | `pthread_sigmask` `sigprocmask` `raise` `sigsuspend` `ppoll` `pselect` `epoll_pwait` `signalfd` `sigpending` `sigblock` `sigpause` … | our signal is never blocked, and programs read back what they set |
//! | `handlers` | (the program's handlers of other signals) `pthread_cancel` | its signals end its calls, whatever our handler makes of them |
//! | `alternate_stack` | `sigaltstack` | the stack that our signal comes in on is no affair of the program's |
//! | `waits` | `sigwait` `sigwaitinfo` `sigtimedwait` | samples are not taken for what the program waits for |
//! | `calls` | `poll` `select` `epoll_wait` `nanosleep` `sleep` `sem_timedwait` … | no EINTR, early or late wake-up that is ours |
//! | `transfers` | `read` `write` `recv` `send` `accept` `setsockopt` … | no short count, and no EINTR of a socket with a time limit, that is ours |
//! | `syscalls` | `syscall` | the same of calls by number; our signal is not blocked by number either |
//! | `strict` | `prctl` | no system call of ours kills who has given them up |
//! | `unload` | `dlclose` | no table is read while it is unmapped |
//!
//! The end of a thread is learnt from a thread-specific key (`rsunwind::life::thread_end`).
//!
//! Never `dlopen` or `dlsym`: libc resolves `$ORIGIN` and RUNPATH by their caller.

mod alternate_stack;
mod calls;
mod cancel;
mod children;
mod exec;
pub mod exit;
pub mod fork;
pub mod handlers;
mod masks;
mod sets;
pub mod signals;
pub mod strict;
pub mod syscalls;
mod threads;
mod transfers;
mod unload;
mod waits;
