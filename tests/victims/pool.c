// `pool THREADS ROUNDS TURNS`: so many threads live at once and compute in turn, so many turns of a
// loop each time; eight of them may run. Each ends after its last round.
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

enum { AT_ONCE = 8 };
static long threads, rounds, turns;
static sem_t *may_run;

static void *run(void *mine) {
  sem_t *next = &may_run[((sem_t *)mine - may_run + AT_ONCE) % threads];
  for (long round = 0; round < rounds; round++) {
    while (sem_wait(mine)) {}
    for (volatile long i = 0; i < turns; i++) {}
    sem_post(next);
  }
  return NULL;
}

int main(int count, char **arguments) {
  if (count < 4) return 2;
  threads = atol(arguments[1]), rounds = atol(arguments[2]), turns = atol(arguments[3]);
  if (threads < AT_ONCE) return 2;
  pthread_t *all = calloc(threads, sizeof *all);
  may_run = calloc(threads, sizeof *may_run);
  if (!all || !may_run) return 1;
  for (long i = 0; i < threads; i++)
    if (pthread_create(&all[i], NULL, run, &may_run[i])) return 1;
  for (long i = 0; i < AT_ONCE; i++) sem_post(&may_run[i]);
  for (long i = 0; i < threads; i++) pthread_join(all[i], NULL);
  return 0;
}
