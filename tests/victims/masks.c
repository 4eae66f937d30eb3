// Threads with signals blocked, and calls that take a mask. Prints what it saw; a number after the
// word is passed on.
#define _GNU_SOURCE
#include "bare.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static jmp_buf back;
static void jump(int signal) { longjmp(back, signal); }
static volatile sig_atomic_t alarms;
static void on_alarm(int signal) { alarms++; (void)signal; }

static void burn(long ms) {
  struct timespec t;
  long start, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  start = now = t.tv_sec * 1000 + t.tv_nsec / 1000000;
  while (now - start < ms) {
    for (volatile int i = 0; i < 20000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    now = t.tv_sec * 1000 + t.tv_nsec / 1000000;
  }
}

static int blocked(void) {
  sigset_t now;
  int result = 0;
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  for (int signal = 1; signal < 32; signal++) result += sigismember(&now, signal);
  return result * 10 + sigismember(&now, SIGPROF);
}

static void *worker(void *unused) {
  printf("born with %d\n", blocked());
  burn(300);
  return unused;
}

static void *raw_worker(void *by_number) {
  unsigned long all = ~0ul;
  if (by_number) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8);
  else bare(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8);
  burn(300);
  return NULL;
}

// The same by number, with what the kernel says to addresses that are none.
static void read_back_by_number(void) {
  unsigned long one = 1ul << (SIGPROF - 1), all = ~0ul, old = 0, *nowhere = (unsigned long *)8;
  struct { int how; unsigned long *set, *old; size_t size; } calls[] = {
    {SIG_BLOCK, &one, &old, 8}, {SIG_BLOCK, NULL, &old, 8}, {SIG_SETMASK, &all, NULL, 8}, {SIG_UNBLOCK, &one, &old, 8},
    {SIG_BLOCK, NULL, &old, 8}, {SIG_BLOCK, &one, &one, 8}, {SIG_SETMASK, &one, &one, 8}, {99, &all, &old, 8}, {99, nowhere, NULL, 8},
    {SIG_BLOCK, nowhere, &old, 8}, {SIG_BLOCK, &all, nowhere, 8}, {SIG_SETMASK, &one, &old, 4}, {SIG_SETMASK, &old, NULL, 8},
  };
  for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
    errno = 0;
    long result = syscall(SYS_rt_sigprocmask, calls[i].how, calls[i].set, calls[i].old, calls[i].size);
    printf("%u: %ld %d %lx %lx %d\n", i, result, errno, one, old, blocked());
  }
}

static pthread_t main_thread;
static void *sender(void *unused) { usleep(50000); pthread_kill(main_thread, SIGUSR1); return unused; }

static void alarm_soon(void) {
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
  struct itimerspec once = {.it_value.tv_nsec = 30000000};
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  timer_settime(timer, 0, &once, NULL);
}

static void with_masks(void) {
  sigset_t all, none, but_alarm, alarm_only;
  sigfillset(&all); sigemptyset(&none);
  but_alarm = all; sigdelset(&but_alarm, SIGALRM);
  sigemptyset(&alarm_only); sigaddset(&alarm_only, SIGALRM);
  struct sigaction action = {.sa_handler = on_alarm};
  sigaction(SIGALRM, &action, NULL);
  sigprocmask(SIG_BLOCK, &alarm_only, NULL);
  struct timespec long_time = {5, 0}, short_time = {0, 40000000};
  int epoll = epoll_create1(0);
  struct epoll_event event;
  // Each waits under a mask that lets the alarm in, then under one that does not.
  alarm_soon(); printf("ppoll %d", ppoll(NULL, 0, &long_time, &but_alarm)); printf(" %d %d\n", errno == EINTR, alarms);
  printf("ppoll %d %d\n", ppoll(NULL, 0, &short_time, &all), alarms);
  alarm_soon(); printf("pselect %d", pselect(0, NULL, NULL, NULL, &long_time, &none)); printf(" %d %d\n", errno == EINTR, alarms);
  printf("pselect %d %d\n", pselect(0, NULL, NULL, NULL, &short_time, &all), alarms);
  alarm_soon(); printf("epoll %d", epoll_pwait(epoll, &event, 1, 5000, &but_alarm)); printf(" %d %d\n", errno == EINTR, alarms);
  printf("epoll %d %d\n", epoll_pwait(epoll, &event, 1, 40, &all), alarms);
  alarm_soon(); printf("sigsuspend %d", sigsuspend(&but_alarm)); printf(" %d %d\n", errno == EINTR, alarms);
  printf("mask %d\n", blocked());
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  sigset_t all, old, one;
  sigfillset(&all);
  main_thread = pthread_self();
  pthread_t thread;
  if (!strcmp(how, "born-blocked")) {
    sigprocmask(SIG_SETMASK, &all, NULL);
    pthread_create(&thread, NULL, worker, NULL);
    pthread_join(thread, NULL);
    printf("main with %d\n", blocked());
    burn(300);
  } else if (!strcmp(how, "attribute")) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setsigmask_np(&attributes, &all);
    pthread_create(&thread, &attributes, worker, NULL);
    pthread_join(thread, NULL);
  } else if (!strcmp(how, "raw-blocked")) {
    pthread_create(&thread, NULL, raw_worker, NULL);
    pthread_join(thread, NULL);
  } else if (!strcmp(how, "blocked-by-number")) {
    pthread_create(&thread, NULL, raw_worker, &thread);
    pthread_join(thread, NULL);
  } else if (!strcmp(how, "readback-by-number")) {
    read_back_by_number();
  } else if (!strcmp(how, "readback")) {
    sigemptyset(&one); sigaddset(&one, SIGPROF);
    printf("%d\n", blocked());
    sigprocmask(SIG_BLOCK, &one, &old); printf("%d %d\n", blocked(), sigismember(&old, SIGPROF));
    sigprocmask(SIG_SETMASK, &all, &old); printf("%d %d\n", blocked(), sigismember(&old, SIGPROF));
    pthread_sigmask(SIG_UNBLOCK, &one, &old); printf("%d %d\n", blocked(), sigismember(&old, SIGPROF));
    pthread_sigmask(SIG_SETMASK, &old, &old); printf("%d %d\n", blocked(), sigismember(&old, SIGPROF));
    printf("%d\n", sigprocmask(99, &all, NULL));
    struct sigaction action = {.sa_handler = on_alarm, .sa_mask = all}, now;
    sigaction(SIGUSR2, &action, NULL); sigaction(SIGUSR2, NULL, &now);
    printf("sa_mask %d %d\n", sigismember(&now.sa_mask, SIGPROF), sigismember(&now.sa_mask, SIGHUP));
  } else if (!strcmp(how, "waits")) {
    with_masks();
  } else if (!strcmp(how, "jumps")) {
    // Out of a waiting call, leaving whatever the mask is by then.
    struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};
    sigaction(SIGALRM, &action, NULL);
    for (volatile int i = 0; i < 5; i++) if (!setjmp(back)) { alarm_soon(); sleep(10); puts("slept"); }
    usleep(1000);
    printf("mask %d\n", blocked());
    burn(300);
  } else if (!strcmp(how, "sigwait")) {
    int got = 0;
    sigprocmask(SIG_SETMASK, &all, NULL);
    burn(100);
    pthread_create(&thread, NULL, sender, NULL);
    sigwait(&all, &got);
    printf("%d\n", got);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, sender, NULL);
    struct signalfd_siginfo info;
    int fd = signalfd(-1, &all, SFD_CLOEXEC);
    ssize_t size = read(fd, &info, sizeof info);
    printf("%zd %d\n", size, info.ssi_signo);
    pthread_join(thread, NULL);
    burn(100);
  } else return 2;
  return 0;
}
