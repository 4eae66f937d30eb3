// A known split of time, in several threads: `static_split CPU_MS THREADS [DEPTH]`. Of all CPU
// time half() uses 50 %, third() 30 %, fifth() 20 %. Each thread works in whole turns until its CPU
// clock shows CPU_MS, whatever the machine's speed, and says what it shows at its end. With DEPTH,
// work is done that many calls of deep() further down.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned long sink;
static int cpu_ms, depth;
#define NEVER __attribute__((noinline))
static inline __attribute__((always_inline)) void work(long units) {
  unsigned long value = sink + 1;
  for (long i = 0; i < units * 400000; i++) {
    value = (value * 0x9e3779b97f4a7c15ul) ^ (value >> 31);
    __asm__ volatile("" : "+r"(value));
  }
  sink = value;
}
NEVER void half(void) { work(5); }
NEVER void third(void) { work(3); }
NEVER void fifth(void) { work(2); }
NEVER void turn(void) { half(); third(); fifth(); sink++; }
NEVER void deep(int further) {
  volatile char room[256];
  room[0] = (char)further;
  if (further) deep(further - 1); else turn();
  sink += room[0];
}
NEVER void *member(void *argument) {
  struct timespec t;
  do {
    if (depth) deep(depth); else turn();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < cpu_ms);
  printf("%d %ld\n", (int)gettid(), t.tv_sec * 1000000000L + t.tv_nsec);
  return argument;
}
int main(int count, char **arguments) {
  cpu_ms = atoi(arguments[1]);
  int threads = atoi(arguments[2]);
  depth = count > 3 ? atoi(arguments[3]) : 0;
  pthread_t others[64];
  for (int i = 1; i < threads; i++) pthread_create(&others[i], NULL, member, NULL);
  member(NULL);
  for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
  fflush(stdout);
  return 3;
}
