// A plug-in that takes its time: `answer(MILLISECONDS)`.
#include <time.h>
__attribute__((noinline)) static int step(int depth) {
  if (depth > 0) return step(depth - 1) + 1;
  for (volatile int i = 0; i < 2000; i++) {}
  return 0;
}
int answer(int ms) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  long start = t.tv_sec * 1000000 + t.tv_nsec / 1000, now = start;
  while (now - start < ms * 1000L) {
    step(20);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    now = t.tv_sec * 1000000 + t.tv_nsec / 1000;
  }
  return 42;
}
