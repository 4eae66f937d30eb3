/* sleeps MILLISECONDS CALL...: each call in a child, with that limit. A line for each: its name,
 * whether it ended by its limit, and how long it took, ms. Where a call has no limit, another child
 * writes to it, or an alarm ends it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
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
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += limit.tv_sec + (until.tv_nsec + limit.tv_nsec) / 1000000000;
  until.tv_nsec = (until.tv_nsec + limit.tv_nsec) % 1000000000;
  if (!strcmp(call, "clock_nanosleep")) return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0;
  if (!strcmp(call, "futex_until")) {
    int word = 0;
    return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &until, NULL, ~0) == -1 && errno == ETIMEDOUT;
  }
  if (!strcmp(call, "epoll_limit")) {
    struct epoll_event event;
    return epoll_wait(epoll_create1(0), &event, 1, (int)ms) == 0;
  }
  if (!strcmp(call, "pselect")) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    return pselect(ends[0] + 1, &set, NULL, NULL, &limit, NULL) == 0;
  }
  if (!strcmp(call, "sigtimedwait")) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return sigtimedwait(&set, NULL, &limit) == -1 && errno == EAGAIN;
  }
  if (!strcmp(call, "semtimedop")) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {0, -1, 0};
    int ended = semtimedop(set, &take, 1, &limit) == -1 && errno == EAGAIN;
    semctl(set, 0, IPC_RMID);
    return ended;
  }
  if (!strcmp(call, "recv_limit") || !strcmp(call, "accept_limit")) {
    struct timeval rest = {ms / 1000, ms % 1000 * 1000};
    int listens = call[0] == 'a', both[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, both)) return 0;
    int one_end = listens ? socket(AF_UNIX, SOCK_STREAM, 0) : both[0];
    struct sockaddr name = {.sa_family = AF_UNIX}; /* the kernel chooses one */
    if (listens && (bind(one_end, &name, sizeof name.sa_family) || listen(one_end, 1))) return 0;
    setsockopt(one_end, SOL_SOCKET, SO_RCVTIMEO, &rest, sizeof rest);
    char byte;
    int ended = listens ? accept(one_end, NULL, NULL) == -1 : recv(one_end, &byte, 1, 0) == -1;
    return ended && errno == EAGAIN;
  }
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
    long began = now(); /* before who writes to it begins to wait */
    if (fork() == 0) {
      prctl(PR_SET_NAME, call);
      dup2(in[0], 0);
      close(in[1]);
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
