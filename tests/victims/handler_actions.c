// Actions of handlers, as they are set, read and used: `handler_actions WAY`, each with the same
// output whoever looks on.
//   small SIZE   handlers on an alternate stack of that many bytes come in sleeping calls and in
//   busy code race         two threads set two kinds of handlers for one signal while it is sent
//   chain        a handler calls the one before, which was read by a raw system call
//   names        the functions that few know of
//   nothing      exec of no path
//   runaway      a handler that raises its own signal, until the stack is full
//   strict       the kernel kills for any system call but four
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wnonnull"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include "bare.h"
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int turns, stop, wrong, misread;
static volatile unsigned long sink;

static void work(int signal) {
  turns++;
  for (int i = 0; i < 20000; i++) sink += i;
  (void)signal;
}
static void small(size_t size) {
  enum { BEYOND = 32768 };
  char *memory = malloc(size + 2 * BEYOND);
  memset(memory, 0x5a, size + 2 * BEYOND);
  stack_t stack = {.ss_sp = memory + BEYOND, .ss_size = size};
  if (sigaltstack(&stack, NULL)) { perror("sigaltstack"); return; }
  struct sigaction action = {.sa_handler = work, .sa_flags = SA_ONSTACK};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < 200; i++) {
    poll(NULL, 0, 1);
    for (int k = 0; k < 200000; k++) sink += k;
  }
  setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
  int beside = 0;
  for (size_t i = 0; i < size + 2 * BEYOND; i++)
    if ((i < BEYOND || i >= BEYOND + size) && memory[i] != 0x5a) beside++;
  printf("small %d %d\n", turns > 50, beside);
}

static void informed(int signal, siginfo_t *info, void *context) {
  if (info->si_signo != signal || info->si_code != SI_TKILL || info->si_pid != getpid() || !context) wrong++;
}
static void plain(int signal) { turns++; (void)signal; }
static void *flip(void *which) {
  struct sigaction with = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO | SA_RESTART};
  struct sigaction without = {.sa_handler = plain, .sa_flags = SA_RESTART}, old;
  while (!stop) {
    sigaction(SIGUSR2, which ? &with : &without, &old);
    if ((old.sa_sigaction == informed) != !!(old.sa_flags & SA_SIGINFO)) misread++;
  }
  return which;
}
static void race(void) {
  struct sigaction with = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGUSR2, &with, NULL);
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, flip, NULL);
  pthread_create(&threads[1], NULL, flip, threads);
  for (int i = 0; i < 200000; i++) pthread_kill(pthread_self(), SIGUSR2);
  stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  printf("race %d %d\n", wrong, misread);
}

static void again(int signal) { raise(signal); turns++; }
static void runaway(void) {
  struct sigaction action = {.sa_handler = again, .sa_flags = SA_NODEFER};
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
}

static void (*before)(int);
static void first(int signal) { turns++; (void)signal; }
static void second(int signal) {
  turns += 100;
  if (turns < 100000) before(signal);
}
static void chain(void) {
  struct { void (*handler)(int); unsigned long flags; void *restorer; unsigned long mask; } action;
  signal(SIGUSR1, first);
  bare(SYS_rt_sigaction, SIGUSR1, NULL, &action, 8);
  before = action.handler;
  signal(SIGUSR1, second);
  raise(SIGUSR1);
  printf("chain %d\n", turns);
}

extern int __sigaction(int signal, const struct sigaction *new, struct sigaction *old);
static void names(void) {
  struct sigaction now;
  signal(SIGUSR1, first);
  printf("ssignal %d\n", ssignal(SIGUSR1, first) == first);
  printf("__sigaction %d", __sigaction(SIGUSR1, NULL, &now));
  printf(" %d\n", now.sa_handler == first);
  signal(SIGPROF, first);
  for (int on = 1; on >= 0; on--) {
    siginterrupt(SIGPROF, on);
    sigaction(SIGPROF, NULL, &now);
    printf("siginterrupt %d %d\n", now.sa_handler == first, !!(now.sa_flags & SA_RESTART));
  }
}

static void strict(void) {
  static char block[8192];
  int ends[2];
  if (pipe(ends)) return;
  fflush(stdout);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) { perror("prctl"); return; }
  for (int i = 0; i < 2000; i++) {
    if (write(ends[1], block, sizeof block) != sizeof block) break;
    if (read(ends[0], block, sizeof block) != sizeof block) break;
    for (int k = 0; k < 20000; k++) sink += k;
  }
  write(1, "strict\n", 7);
  bare(SYS_exit, 0);
}

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "";
  if (!strcmp(way, "small")) small(atoi(arguments[2]));
  else if (!strcmp(way, "race")) race();
  else if (!strcmp(way, "chain")) chain();
  else if (!strcmp(way, "names")) names();
  else if (!strcmp(way, "strict")) strict();
  else if (!strcmp(way, "runaway")) runaway();
  else if (!strcmp(way, "nothing")) {
    char *none[] = {NULL};
    for (int by_number = 0; by_number < 2; by_number++) {
      int result = by_number ? syscall(SYS_execve, NULL, none, none) : execve(NULL, none, none);
      printf("nothing %d %d\n", result, errno);
    }
  }
  return 0;
}
