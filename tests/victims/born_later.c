/* born_later SECONDS: threads that work for a tenth of a second of CPU time each, one after the
 * other. At the end: how many. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sum;

static long cpu_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

__attribute__((noinline)) static void born(void) {
  while (cpu_ms() < 100)
    for (int i = 0; i < 10000; i++) sum += (unsigned long)i;
}

static void *begin(void *unused) {
  born();
  return unused;
}

int main(int count, char **arguments) {
  long number = 0, until = count > 1 ? atol(arguments[1]) * 10 : 10;
  for (; number < until; number++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, begin, NULL)) return 1;
    pthread_join(thread, NULL);
  }
  printf("%ld\n", number);
  return 3;
}
