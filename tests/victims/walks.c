// Walks its own stack, some 60 frames deep, on the main thread and on another, and prints what a
// walk takes. Linked with the library.
#include "rsunwind.h"
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { WALKS = 20000, ROUNDS = 5, FRAMES = 100 };

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static double best_ns(int *frames) {
  void *pcs[FRAMES];
  double best = 1e18;
  for (int round = 0; round < ROUNDS; round++) {
    double began = now_ns();
    for (int i = 0; i < WALKS; i++) *frames = rsunwind_backtrace(pcs, FRAMES);
    double each = (now_ns() - began) / WALKS;
    if (each < best) best = each;
  }
  return best;
}

__attribute__((noinline)) static int deep(int levels, const char *place) {
  volatile char frame[100];
  frame[0] = (char)levels;
  if (levels > 0) return deep(levels - 1, place) + frame[0];
  int frames = 0;
  double each = best_ns(&frames);
  printf("%-8s %6.0f (%d frames)\n", place, each, frames);
  return frame[0];
}

static void *thread(void *unused) {
  deep(60, "thread");
  return unused;
}

int main(void) {
  deep(60, "main");
  pthread_t id;
  if (pthread_create(&id, NULL, thread, NULL)) return 1;
  pthread_join(id, NULL);
  return 0;
}
