// Calls of many kinds that the preload library stands in front of, or that are its own interface,
// each in a function of its own, for as long as the other: `own_frames MILLISECONDS`, of CPU time,
// with that of children.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int rsunwind_backtrace(void **, int) __attribute__((weak));

static int ends[2];
static void tick(int signal) { (void)signal; for (volatile int i = 0; i < 2000; i++) {} }
static void *nothing(void *unused) { return unused; }

static void polls(void) { struct pollfd one = {ends[0], POLLIN, 0}; poll(&one, 1, 0); }
static void reads(void) { char c; if (write(ends[1], "x", 1) + read(ends[0], &c, 1)) {} }
static void masks(void) { sigset_t set; sigemptyset(&set); sigaddset(&set, SIGPROF); pthread_sigmask(SIG_BLOCK, &set, NULL); pthread_sigmask(SIG_UNBLOCK, &set, NULL); }
static void handles(void) { raise(SIGUSR1); }
static void begins(void) { pthread_t thread; if (!pthread_create(&thread, NULL, nothing, NULL)) pthread_join(thread, NULL); }
static void forks(void) { pid_t child = fork(); if (child == 0) _exit(0); waitpid(child, NULL, 0); }
static void asks(void) { void *frames[64]; if (rsunwind_backtrace) rsunwind_backtrace(frames, 64); }

static double ms(struct timeval time) { return time.tv_sec * 1e3 + time.tv_usec / 1e3; }
static double used(int who) { struct rusage usage; getrusage(who, &usage); return ms(usage.ru_utime) + ms(usage.ru_stime); }
static double now(void) { return used(RUSAGE_SELF) + used(RUSAGE_CHILDREN); }

int main(int argc, char **argv) {
  void (*all[])(void) = {polls, reads, masks, handles, begins, forks, asks};
  int count = sizeof all / sizeof *all;
  double each = argc > 1 ? atof(argv[1]) / count : 100;
  signal(SIGUSR1, tick);
  if (pipe(ends)) return 1;
  for (int i = 0; i < count; i++)
    for (double end = now() + each; now() < end;)
      for (int turn = 0; turn < 10; turn++) all[i]();
  return 0;
}
