// Computes for some CPU time below a stack of many thousand frames: `deep FRAMES MILLISECONDS`.
// Says how deep it was. With a third argument each of its own frames is called by one of libc's,
// which is far away.
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long frames, milliseconds;
static volatile long sink;

static void burn(void) {
  struct timespec began, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
  do {
    for (int i = 0; i < 100000; i++) sink += i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000 < milliseconds);
}

__attribute__((noinline)) static long down(long left) {
  if (left == 0) {
    burn();
    return 0;
  }
  volatile long here = left; // read behind the call, so that there is a frame
  long below = down(left - 1);
  return below + (here == left);
}

static size_t one = 1;
static int far_left, is_far;

static int by_libc(const void *key, const void *unused) {
  (void)unused;
  if (--far_left <= 0) {
    burn();
    return 0;
  }
  return lfind(key, key, &one, 1, by_libc) == NULL;
}

static long down_far(long left) {
  static char key;
  far_left = left / 2;
  return lfind(&key, &key, &one, 1, by_libc) ? left : 0;
}

static void *run(void *unused) {
  printf("%ld\n", is_far ? down_far(frames) : down(frames));
  return unused;
}

int main(int count, char **arguments) {
  frames = count > 1 ? atol(arguments[1]) : 100000;
  milliseconds = count > 2 ? atol(arguments[2]) : 500;
  is_far = count > 3;
  pthread_attr_t large;
  pthread_t thread;
  pthread_attr_init(&large);
  if (pthread_attr_setstacksize(&large, 512ul << 20) || pthread_create(&thread, &large, run, NULL)) return 1;
  return pthread_join(thread, NULL);
}
