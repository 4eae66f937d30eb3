// Has the kernel hand system calls over to the program while a word says so, as Wine does, and
// computes meanwhile: `dispatched WAY`, by libc (prctl), by number (number), or by a system call of
// its own (raw). Prints how many were handed over, which are not its own.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
enum { ON = 1, ALLOW = 0, BLOCK = 1 };

static volatile char selector = ALLOW;
static volatile double sink;
static volatile long handed_over;

static void on_call(int signal) {
  (void)signal;
  selector = ALLOW;
  handed_over++;
}

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "";
  struct sigaction action = {.sa_handler = on_call};
  sigaction(SIGSYS, &action, NULL);
  if (!strcmp(way, "raw")) {
    long result;
    register const volatile char *word __asm__("r8") = &selector;
    register long length __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_prctl), "D"(PR_SET_SYSCALL_USER_DISPATCH), "S"(ON), "d"(0), "r"(length), "r"(word)
                     : "rcx", "r11", "memory");
    if (result) return 2;
  } else if (!strcmp(way, "number")) {
    if (syscall(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, ON, 0L, 0L, &selector)) return 2;
  } else {
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, 0L, 0L, &selector)) return 2;
  }
  // That clock is read by a system call.
  while (clock() < CLOCKS_PER_SEC / 5) {
    selector = BLOCK;
    for (long i = 0; i < 1000000; i++) sink += i;
    selector = ALLOW;
  }
  printf("%ld\n", handed_over);
  return 0;
}
