//! Names of system calls: of those in which a thread may sleep.

use nix::libc;

macro_rules! names {
    ($($(#[$when:meta])* $number:ident => $name:literal),* $(,)?) => {
        /// The name of a system call; `None` of one in which threads do not sleep for long.
        pub(super) fn name(number: i64) -> Option<&'static str> {
            $($(#[$when])* if number == libc::$number { return Some($name); })*
            None
        }
    };
}

names! {
    SYS_read => "read", SYS_readv => "readv", SYS_pread64 => "pread64", SYS_preadv => "preadv",
    SYS_write => "write", SYS_writev => "writev", SYS_pwrite64 => "pwrite64",
    SYS_sendfile => "sendfile", SYS_splice => "splice", SYS_copy_file_range => "copy_file_range",
    SYS_recvfrom => "recvfrom", SYS_recvmsg => "recvmsg", SYS_recvmmsg => "recvmmsg",
    SYS_sendto => "sendto", SYS_sendmsg => "sendmsg", SYS_accept => "accept",
    SYS_accept4 => "accept4", SYS_connect => "connect", SYS_close => "close",
    SYS_fsync => "fsync", SYS_fdatasync => "fdatasync", SYS_sync => "sync", SYS_flock => "flock",
    SYS_fcntl => "fcntl", SYS_ioctl => "ioctl", SYS_openat => "openat", SYS_ftruncate => "ftruncate",
    SYS_fallocate => "fallocate", SYS_getdents64 => "getdents64", SYS_newfstatat => "newfstatat",
    SYS_unlinkat => "unlinkat", SYS_renameat2 => "renameat2", SYS_mmap => "mmap",
    SYS_munmap => "munmap", SYS_madvise => "madvise", SYS_mprotect => "mprotect",
    SYS_futex => "futex", SYS_nanosleep => "nanosleep", SYS_clock_nanosleep => "clock_nanosleep",
    SYS_ppoll => "ppoll", SYS_pselect6 => "pselect6", SYS_epoll_pwait => "epoll_pwait",
    SYS_epoll_pwait2 => "epoll_pwait2", SYS_io_uring_enter => "io_uring_enter",
    SYS_io_getevents => "io_getevents", SYS_wait4 => "wait4", SYS_waitid => "waitid",
    SYS_rt_sigtimedwait => "rt_sigtimedwait", SYS_rt_sigsuspend => "rt_sigsuspend",
    SYS_restart_syscall => "restart_syscall", SYS_semop => "semop", SYS_semtimedop => "semtimedop",
    SYS_msgrcv => "msgrcv", SYS_msgsnd => "msgsnd", SYS_mq_timedreceive => "mq_timedreceive",
    SYS_mq_timedsend => "mq_timedsend", SYS_exit => "exit", SYS_exit_group => "exit_group",
    SYS_execve => "execve", SYS_clone => "clone", SYS_clone3 => "clone3", SYS_ptrace => "ptrace",
    SYS_mount => "mount", SYS_umount2 => "umount2", SYS_membarrier => "membarrier",
    #[cfg(target_arch = "x86_64")] SYS_poll => "poll",
    #[cfg(target_arch = "x86_64")] SYS_select => "select",
    #[cfg(target_arch = "x86_64")] SYS_epoll_wait => "epoll_wait",
    #[cfg(target_arch = "x86_64")] SYS_pause => "pause",
    #[cfg(target_arch = "x86_64")] SYS_vfork => "vfork",
    #[cfg(target_arch = "x86_64")] SYS_fork => "fork",
    #[cfg(target_arch = "x86_64")] SYS_open => "open",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names() {
        assert_eq!(name(libc::SYS_futex), Some("futex"));
        assert_eq!(name(libc::SYS_ppoll), Some("ppoll"));
        assert_eq!(name(-1), None);
    }
}
