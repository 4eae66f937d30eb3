// `down THREADS DEPTH TURNS`: each thread goes down that deep and up again, and computes and
// allocates at each frame.
#include <pthread.h>
#include <stdlib.h>

static long depth, turns;

__attribute__((noinline)) static long down(long left) {
  volatile long here = left;
  for (int i = 0; i < 1000; i++) here += i;
  free(malloc(8));
  return left ? down(left - 1) + here : here;
}

static void *run(void *x) {
  for (long i = 0; i < turns; i++) x = (void *)down(depth);
  return x;
}

int main(int count, char **arguments) {
  if (count < 4) return 2;
  long threads = atol(arguments[1]);
  depth = atol(arguments[2]), turns = atol(arguments[3]);
  pthread_t all[256];
  if (threads > 256) return 2;
  for (long i = 0; i < threads; i++)
    if (pthread_create(&all[i], 0, run, 0)) return 1;
  for (long i = 0; i < threads; i++) pthread_join(all[i], 0);
  return 0;
}
