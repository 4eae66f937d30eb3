// Calls that a signal handler must not mistake for others, or for something that was cut short.
// Prints "right", or what went wrong.
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int wrong;
static void check(int right, const char *what, long value) {
  if (!right && !wrong++) printf("%s: %ld\n", what, value);
}

// The number is not what the last instruction before the call puts into a register.
static long wait_on(int epoll, struct epoll_event *event) {
  long result;
  register long timeout __asm__("r10") = 1, size __asm__("r9") = 8;
  __asm__ volatile("mov $281, %%eax\n\txor %%r8d, %%r8d\n\tsyscall"
                   : "=&a"(result) : "D"(epoll), "S"(event), "d"(1), "r"(timeout), "r"(size) : "rcx", "r8", "r11", "memory");
  return result;
}
static long wait_in(struct pollfd *none, struct timespec *time) {
  long result;
  register long rest __asm__("r10") = 0;
  __asm__ volatile("mov $271, %%eax\n\tmov $8, %%r8d\n\tsyscall"
                   : "=&a"(result) : "D"(none), "S"(0), "d"(time), "r"(rest) : "rcx", "r8", "r11", "memory");
  return result;
}

// The number is in a register that keeps it, as compilers do that make the call more than once.
static long wait_held(struct timespec *time) {
  long result;
  register long rest __asm__("r10") = 0, size __asm__("r8") = 8, number __asm__("r15") = SYS_ppoll;
  __asm__ volatile("mov %%r15d, %%eax\n\tsyscall"
                   : "=&a"(result) : "D"(NULL), "S"(0), "d"(time), "r"(rest), "r"(size), "r"(number) : "rcx", "r11", "memory");
  return result;
}

int main(void) {
  alarm(60); // a wait of days would be wrong, too
  int pair[2], epoll = epoll_create1(0);
  if (epoll < 0 || socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) return 2;
  struct epoll_event event;
  for (int i = 0; i < 700; i++) {
    long result = wait_on(epoll, &event);
    check(result == 0 || result == -4, "epoll_pwait", result);
    struct timespec time = {0, 1000000};
    result = wait_in(NULL, &time);
    check(result == 0 || result == -4, "ppoll", result);
    time = (struct timespec){0, 1000000};
    check((result = wait_held(&time)) == 0, "ppoll by a register", result);
    // What lies above an int in its register is nobody's business.
    result = syscall(SYS_poll, NULL, 0, (1L << 32) + 1);
    check(result == 0, "poll", result);
  }
  // A message is whole, whatever was asked for.
  static char message[1 << 16], got[1 << 17];
  for (int i = 0; i < 100000; i++) {
    if (send(pair[1], message, sizeof message, 0) < 0) return 3;
    long size = recv(pair[0], got, sizeof got, MSG_WAITALL);
    check(size == sizeof message, "message", size);
  }
  if (!wrong) puts("right");
  return 0;
}
