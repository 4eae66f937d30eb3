// Known ways of waiting, each in a thread and a function of its own: `off_cpu MS [busy|forever]`,
// each for about that long. Each function prints what it measured itself: how long it took and how
// much of that on a CPU; calls that were interrupted, and waits that were too short. With busy
// there is one thread that works and one that works and sleeps; with forever the main thread ends
// in a long sleep, beside one more.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define NEVER __attribute__((noinline))
static long for_ms;
static int ends[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t signalled = PTHREAD_COND_INITIALIZER;
static volatile int turn, over;
static volatile unsigned long sink;

static long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}
struct account { const char *name; long wall, cpu, calls, interrupted, too_short; };
static void begin(struct account *a, const char *name) {
  memset(a, 0, sizeof *a);
  a->name = name;
  a->cpu = -now(CLOCK_THREAD_CPUTIME_ID);
  a->wall = -now(CLOCK_MONOTONIC);
}
static void end(struct account *a) {
  a->wall += now(CLOCK_MONOTONIC);
  a->cpu += now(CLOCK_THREAD_CPUTIME_ID);
  printf("%s %d %ld %ld %ld %ld %ld\n", a->name, (int)gettid(), a->wall, a->cpu, a->calls, a->interrupted, a->too_short);
}
static int goes_on(struct account *a) { return a->wall + now(CLOCK_MONOTONIC) < for_ms * 1000000; }

NEVER void napping(void) {
  struct account a;
  struct timespec nap = {0, 7000000};
  for (begin(&a, "napping"); goes_on(&a); a.calls++) {
    long before = now(CLOCK_MONOTONIC);
    if (nanosleep(&nap, 0)) a.interrupted++;
    a.too_short += now(CLOCK_MONOTONIC) - before < nap.tv_nsec;
  }
  end(&a);
}
NEVER void polling(void) {
  struct account a;
  for (begin(&a, "polling"); goes_on(&a); a.calls++) {
    long before = now(CLOCK_MONOTONIC);
    if (poll(0, 0, 9)) a.interrupted++;
    a.too_short += now(CLOCK_MONOTONIC) - before < 9000000;
  }
  end(&a);
}
NEVER void reading(void) {
  struct account a;
  char byte;
  for (begin(&a, "reading"); !over; a.calls++)
    if (read(ends[0], &byte, 1) != 1) a.interrupted++;
  end(&a);
}
NEVER void awaiting(void) {
  struct account a;
  pthread_mutex_lock(&lock);
  for (begin(&a, "awaiting"); !over; a.calls++) {
    while (!turn) if (pthread_cond_wait(&signalled, &lock)) a.interrupted++;
    turn = 0;
  }
  end(&a);
  pthread_mutex_unlock(&lock);
}
NEVER void working(long ms) {
  long until = now(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000;
  while (now(CLOCK_THREAD_CPUTIME_ID) < until)
    for (int i = 0; i < 20000; i++) sink += sink * 31 + i;
}
// Of a whole thread: its life begins when its maker was about to make it.
static void life(const char *name, long since, long cpu) {
  printf("%s %d %ld %ld 0 0 0\n", name, (int)gettid(), now(CLOCK_MONOTONIC) - since, cpu);
}
static void *worker(void *since) {
  working(for_ms);
  life("worker", (long)since, now(CLOCK_THREAD_CPUTIME_ID));
  return 0;
}
static void *mixed(void *since) {
  for (int i = 0; i < 10; i++) {
    struct timespec nap = {0, for_ms * 100000};
    working(for_ms / 10);
    nanosleep(&nap, 0);
  }
  life("mixed", (long)since, now(CLOCK_THREAD_CPUTIME_ID));
  return 0;
}
NEVER void sleeping_on(void) { sleep(1000); sink++; }
static void *asleep(void *argument) { sleeping_on(); return argument; }

typedef void function(void);
NEVER void *member(void *argument) {
  ((function *)argument)();
  sink++;
  return 0;
}
static void wake(void) {
  pthread_mutex_lock(&lock);
  turn = 1;
  pthread_cond_signal(&signalled);
  pthread_mutex_unlock(&lock);
  if (write(ends[1], "x", 1) != 1) abort();
}
static void ways(void) {
  function *all[] = {napping, polling, reading, awaiting};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, member, all[i]);
  for (long until = now(CLOCK_MONOTONIC) + for_ms * 1000000; now(CLOCK_MONOTONIC) < until; wake()) usleep(11000);
  over = 1;
  wake();
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
}
int main(int count, char **arguments) {
  const char *how = count > 2 ? arguments[2] : "";
  pthread_t one, two;
  for_ms = atol(arguments[1]);
  if (pipe(ends)) return 1;
  if (!strcmp(how, "busy")) {
    pthread_create(&one, 0, worker, (void *)now(CLOCK_MONOTONIC));
    pthread_create(&two, 0, mixed, (void *)now(CLOCK_MONOTONIC));
    pthread_join(one, 0);
    pthread_join(two, 0);
  } else if (!strcmp(how, "forever")) {
    pthread_create(&one, 0, asleep, 0);
    sleeping_on();
  } else {
    ways();
  }
  return 3;
}
