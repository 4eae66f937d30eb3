// Forbids itself to read the processor's counter, and computes: `no_counter WAY`, by libc (prctl),
// by number (number), before a fork (fork), or by a system call of its own (raw). Prints how the
// work ended.
#define _GNU_SOURCE
#include <linux/prctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <poll.h>

static volatile double sink;

static int work(void) {
  // That clock is read by a system call.
  while (clock() < CLOCKS_PER_SEC / 5)
    for (long i = 0; i < 100000; i++) sink += i;
  // Calls whose time a profiler may want to know.
  for (int i = 0; i < 20; i++) poll(NULL, 0, 1);
  return write(1, "done\n", 5) != 5;
}

int main(int count, char **arguments) {
  (void)count;
  const char *way = arguments[1];
  if (!strcmp(way, "number")) {
    syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
  } else if (!strcmp(way, "raw")) {
    long result;
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_prctl), "D"(PR_SET_TSC), "S"(PR_TSC_SIGSEGV), "d"(0), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
  } else {
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
  }
  if (!strcmp(way, "fork")) {
    pid_t child = fork();
    if (child == 0) return work();
    int status;
    waitpid(child, &status, 0);
    return status != 0;
  }
  return work();
}
