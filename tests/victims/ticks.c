// Computes for 250 ms of CPU time on the first processor that it may use, with a timer that goes by
// the kernel's ticks; prints in ms what of its CPU time the timer has seen, and that time. It looks
// at its CPU clock seldom: that ends a turn on the processor, and a tick finds the next thread.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

enum { EACH_MS = 4, WORK_MS = 250, LOOK_MS = 40 };

static volatile sig_atomic_t ticks;
static void tick(int signal) { ticks++; (void)signal; }

static long ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int count, char **arguments) {
  (void)arguments;
  cpu_set_t set;
  int first = 0;
  sched_getaffinity(0, sizeof set, &set);
  while (!CPU_ISSET(first, &set)) first++;
  CPU_ZERO(&set);
  CPU_SET(first, &set);
  sched_setaffinity(0, sizeof set, &set);
  for (volatile int competes = count > 1; competes;) {}
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGPROF, &action, NULL);
  struct itimerval every = {{0, EACH_MS * 1000}, {0, EACH_MS * 1000}}, none = {{0}};
  long began = ms(CLOCK_THREAD_CPUTIME_ID), used;
  setitimer(ITIMER_PROF, &every, NULL);
  do {
    for (long start = ms(CLOCK_MONOTONIC); ms(CLOCK_MONOTONIC) - start < LOOK_MS;) {}
    used = ms(CLOCK_THREAD_CPUTIME_ID) - began;
  } while (used < WORK_MS);
  setitimer(ITIMER_PROF, &none, NULL);
  printf("%ld %ld\n", (long)ticks * EACH_MS, used);
  return 0;
}
