// Starts many threads that end at once, eight at a time: `many_threads COUNT [TURNS]` prints the µs
// of CPU time that each took, with so many turns of a loop (2,000).
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static int turns = 2000;

static void *brief(void *unused) {
  for (volatile int i = 0; i < turns; i++) {}
  return unused;
}

int main(int count, char **arguments) {
  int threads = count > 1 ? atoi(arguments[1]) : 2000;
  if (count > 2) turns = atoi(arguments[2]);
  for (int i = 0; i < threads; i += 8) {
    pthread_t some[8];
    for (int k = 0; k < 8; k++)
      if (pthread_create(&some[k], NULL, brief, NULL)) return 1;
    for (int k = 0; k < 8; k++) pthread_join(some[k], NULL);
  }
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  double us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  printf("%.1f\n", us / threads);
  return 0;
}
