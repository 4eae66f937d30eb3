// Starts threads that end at once, one after the other, then one that computes for 400 ms of CPU
// time, then one that is asleep when the process exits: `brief_threads COUNT`. The last two have
// names.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile long sink;
static int ready[2];

static void *nothing(void *unused) { return unused; }

static void *lasting(void *unused) {
  pthread_setname_np(pthread_self(), "lasting");
  struct timespec now;
  do {
    for (int i = 0; i < 100000; i++) sink += i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while (now.tv_sec == 0 && now.tv_nsec < 400000000);
  return unused;
}

static void *idle(void *unused) {
  pthread_setname_np(pthread_self(), "idle");
  if (write(ready[1], "", 1) != 1) abort();
  for (;;) pause();
  return unused;
}

static void run(void *(*function)(void *)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, function, NULL) || pthread_join(thread, NULL)) abort();
}

int main(int count, char **arguments) {
  for (int i = count > 1 ? atoi(arguments[1]) : 100; i > 0; i--) run(nothing);
  run(lasting);
  pthread_t thread;
  char byte;
  if (pipe(ready) || pthread_create(&thread, NULL, idle, NULL) || read(ready[0], &byte, 1) != 1) abort();
  return 0;
}
