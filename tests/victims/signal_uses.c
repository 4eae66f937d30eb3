// Uses of a signal that a profiler may want for itself: `signal_uses WAY SIGNAL` prints what the
// program sees of its own signals.
//   file     reads them from a signalfd, while another thread computes
//   file-raw the same, by system calls that no library stands in front of
//   wait     waits for them by sigtimedwait
//   handler  counts them in a handler that saves all masks and restores them, as locks do
//   jump     the same, and leaves each time by siglongjmp
//   swap     the same, and leaves each time by swapcontext
//   exec     replaces itself by a program that takes no notice of anything, by a system call of its
//   own, again and again
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <poll.h>

enum { ROUNDS = 40 };

static volatile int stop, seen;
static volatile double sink;
static int number;

static long bare(long call, long a, long b, long c, long d) {
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(call), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

static void compute_for(int milliseconds) {
  struct timespec begun, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
  do {
    for (int i = 0; i < 10000; i++) sink += i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < milliseconds);
}

static void *compute(void *unused) {
  while (!stop) compute_for(5);
  return unused;
}

static int of_file(int is_raw) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  unsigned long mask = 1ul << (number - 1);
  if (is_raw) bare(SYS_rt_sigprocmask, SIG_BLOCK, (long)&mask, 0, 8);
  else sigprocmask(SIG_BLOCK, &set, NULL);
  pthread_t other;
  pthread_create(&other, NULL, compute, NULL);
  int fd = is_raw ? (int)bare(SYS_signalfd4, -1, (long)&mask, 8, 0) : signalfd(-1, &set, 0);
  int read_so_far = 0, strange = 0;
  for (int i = 0; i < ROUNDS; i++) {
    compute_for(3);
    kill(getpid(), number);
    struct pollfd readable = {fd, POLLIN, 0};
    if (poll(&readable, 1, 2000) != 1) break;
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof info) != sizeof info) break;
    strange += (int)info.ssi_signo != number || info.ssi_code != SI_USER;
    read_so_far++;
  }
  stop = 1;
  pthread_join(other, NULL);
  printf("read %d, strange %d\n", read_so_far, strange);
  return 0;
}

static int of_waits(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, NULL);
  int waited = 0;
  for (int i = 0; i < ROUNDS; i++) {
    compute_for(3);
    kill(getpid(), number);
    struct timespec limit = {5, 0};
    waited += sigtimedwait(&set, NULL, &limit) == number;
  }
  printf("waited for %d\n", waited);
  return 0;
}

static sigjmp_buf back;
static ucontext_t outside, inside;
static enum { RETURN, JUMP, SWAP } leave;

static void on_signal(int signal) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  seen += signal == number;
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (leave == JUMP) siglongjmp(back, 1);
  if (leave == SWAP) swapcontext(&inside, &outside);
}

static void send_one(void) {
  compute_for(3);
  if (leave == JUMP && sigsetjmp(back, 1)) return;
  if (leave != SWAP) {
    kill(getpid(), number);
    return;
  }
  volatile int been_here = 0;
  getcontext(&outside);
  if (been_here) return;
  been_here = 1;
  kill(getpid(), number);
}

static int of_handlers(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigaction(number, &action, NULL);
  sigset_t now;
  for (int i = 0; i < ROUNDS; i++) send_one();
  sigprocmask(SIG_BLOCK, NULL, &now);
  printf("handled %d, blocked %d\n", seen, sigismember(&now, number));
  compute_for(120);
  return 0;
}

static int of_execs(const char *self) {
  int died = 0;
  for (int i = 0; i < ROUNDS; i++) {
    pid_t child = vfork();
    if (child == 0) {
      execl(self, self, "exec-now", "0", NULL);
      _exit(9);
    }
    int status;
    waitpid(child, &status, 0);
    died += status != 0;
  }
  printf("died %d\n", died);
  return 0;
}

int main(int count, char **arguments) {
  (void)count;
  const char *way = arguments[1];
  number = atoi(arguments[2]);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(way, "file")) return of_file(0);
  if (!strcmp(way, "file-raw")) return of_file(1);
  if (!strcmp(way, "wait")) return of_waits();
  if (!strcmp(way, "exec")) return of_execs(arguments[0]);
  if (!strcmp(way, "exec-now")) {
    compute_for(8);
    char *no_arguments[] = {"true", NULL}, *no_environment[] = {NULL};
    bare(SYS_execve, (long)"/bin/true", (long)no_arguments, (long)no_environment, 0);
    return 8;
  }
  leave = !strcmp(way, "jump") ? JUMP : !strcmp(way, "swap") ? SWAP : RETURN;
  return of_handlers();
}
