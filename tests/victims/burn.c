// Burns CPU time: `burn MILLISECONDS [THREADS]`, in every thread.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long limit;

__attribute__((noinline)) static void work(void) {
  for (volatile int i = 0; i < 20000; i++) {}
}

static void *burn(void *unused) {
  struct timespec t;
  do {
    work();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < limit);
  return unused;
}

int main(int count, char **arguments) {
  limit = count > 1 ? atol(arguments[1]) : 100;
  int threads = count > 2 ? atoi(arguments[2]) : 0;
  pthread_t *all = calloc(threads + 1, sizeof *all);
  for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, burn, NULL);
  burn(NULL);
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
  free(all);
  return 0;
}
