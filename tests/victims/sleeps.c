/* sleeps MILLISECONDS CALL...: each call in a child, with that limit. A line for each: its name, whether it ended by its limit, and
   how long it took, ms. Where a call has no limit, another child writes to it, or an alarm ends it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static volatile int is_woken;

static void woken(int signal) {
  (void)signal;
  is_woken = 1;
}

/* Whether the call ended as its limit has it. */
static int sleeps(const char *call, long ms) {
  struct timespec limit = {ms / 1000, ms % 1000 * 1000000};
  int ends[2];
  if (pipe(ends)) return 0;
  struct pollfd one = {ends[0], POLLIN, 0};
  if (!strcmp(call, "nanosleep")) return nanosleep(&limit, NULL) == 0;
  if (!strcmp(call, "poll")) return poll(&one, 1, (int)ms) == 0;
  if (!strcmp(call, "ppoll")) return ppoll(&one, 1, &limit, NULL) == 0;
  if (!strcmp(call, "select")) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval rest = {ms / 1000, ms % 1000 * 1000};
    return select(ends[0] + 1, &set, NULL, NULL, &rest) == 0;
  }
  if (!strcmp(call, "futex")) {
    int word = 0;
    return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &limit, NULL, 0) == -1 && errno == ETIMEDOUT;
  }
  /* Without a limit: the parent writes. */
  char byte;
  if (!strcmp(call, "read")) return read(0, &byte, 1) == 1;
  if (!strcmp(call, "epoll")) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, 0, &event);
    return epoll_wait(set, &event, 1, -1) == 1;
  }
  if (!strcmp(call, "sigsuspend")) { /* by the alarm, which is blocked but there */
    sigset_t alarm_only, none;
    sigemptyset(&none);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm_only, NULL);
    signal(SIGALRM, woken);
    struct itimerval once = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &once, NULL);
    int ended = sigsuspend(&none) == -1 && errno == EINTR;
    sigset_t now_blocked;
    sigprocmask(SIG_BLOCK, NULL, &now_blocked);
    return ended && is_woken && sigismember(&now_blocked, SIGALRM);
  }
  if (!strcmp(call, "recv")) return recv(0, &byte, 1, 0) == 1;
  return 0;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  long ms = atol(arguments[1]);
  int in[2];
  for (int i = 2; i < count; i++) {
    const char *call = arguments[i];
    int is_socket = !strcmp(call, "recv");
    if (is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, in) : pipe(in)) return 1;
    int without = is_socket || !strcmp(call, "read") || !strcmp(call, "epoll");
    if (fork() == 0) {
      dup2(in[0], 0);
      close(in[1]);
      long began = now();
      int well = sleeps(call, ms);
      printf("%s %s %ld\n", call, well ? "well" : strerror(errno), now() - began);
      return 0;
    }
    if (without && fork() == 0) {
      struct timespec limit = {ms / 1000, ms % 1000 * 1000000};
      nanosleep(&limit, NULL);
      return write(in[1], "x", 1) != 1;
    }
    close(in[0]);
    close(in[1]);
  }
  while (wait(NULL) > 0) {}
  return 0;
}
