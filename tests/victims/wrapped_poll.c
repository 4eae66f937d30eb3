// A library of the user's own that stands between ours and libc: its poll() works in the kernel itself, then calls the host's.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sys/syscall.h>

int poll(struct pollfd *fds, nfds_t count, int timeout) {
  static int (*host)(struct pollfd *, nfds_t, int);
  static char random[4096];
  if (!host) host = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getrandom), "D"(random), "S"(sizeof random), "d"(0) : "rcx", "r11", "memory");
  return host(fds, count, timeout);
}
