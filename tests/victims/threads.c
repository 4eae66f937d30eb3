// Threads that end, and are, in every way: `threads WAY`. Prints what it counted.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static void burn(long us) {
  struct timespec t;
  long start, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  start = now = t.tv_sec * 1000000 + t.tv_nsec / 1000;
  while (now - start < us) {
    for (volatile int i = 0; i < 2000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    now = t.tv_sec * 1000000 + t.tv_nsec / 1000;
  }
}

static int cleaned, destroyed;
static pthread_key_t key;
static void clean(void *unused) { __sync_fetch_and_add(&cleaned, 1); burn(100); (void)unused; }
static void destroy(void *unused) { __sync_fetch_and_add(&destroyed, 1); burn(100); (void)unused; }

static void *returns(void *value) { pthread_setspecific(key, &key); burn(3000); return value; }
static void deep(int depth) { if (depth) { deep(depth - 1); __asm__ volatile(""); } else { pthread_cleanup_push(clean, NULL); burn(3000); pthread_exit((void *)7); pthread_cleanup_pop(0); } }
static void *leaves(void *unused) { pthread_setspecific(key, &key); deep(50); return unused; }

static sem_t ready;
static int quiet[2], quiet_socket[2];
static void *waits(void *where) {
  pthread_setspecific(key, &key);
  char c[100000];
  struct pollfd one = {quiet[0], POLLIN, 0};
  pthread_cleanup_push(clean, NULL);
  burn((long)where == 10 ? 100 : 3000);
  sem_post(&ready);
  switch ((long)where) {
    case 0: poll(&one, 1, -1); break;
    case 1: if (read(quiet[0], c, 1)) {} break;
    case 2: if (read(quiet[0], c, sizeof c)) {} break;
    case 3: recv(quiet_socket[0], c, 1, 0); break;
    case 4: sleep(1000); break;
    case 5: case 10: pause(); break;
    case 6: ppoll(&one, 1, NULL, NULL); break;
    case 7: { sigset_t set; int got; sigemptyset(&set); sigaddset(&set, SIGUSR1); sigwait(&set, &got); break; }
    case 8: for (;;) { burn(100); pthread_testcancel(); }
    case 9: pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL); for (;;) burn(100);
  }
  pthread_cleanup_pop(0);
  return NULL;
}

static int small(void *unused) { burn(5000); return unused ? 5 : 0; }
static void *tiny(void *unused) { for (int i = 0; i < 20; i++) burn(1000); return unused; }
static void *once(void *unused) { burn(200); return unused; }

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "";
  pthread_t thread;
  void *result;
  pthread_key_create(&key, destroy);
  sem_init(&ready, 0, 0);
  if (pipe(quiet) || socketpair(AF_UNIX, SOCK_STREAM, 0, quiet_socket)) return 3;
  if (!strcmp(way, "returns") || !strcmp(way, "leaves")) {
    long sum = 0;
    for (int i = 0; i < 50; i++) {
      pthread_create(&thread, NULL, *way == 'r' ? returns : leaves, (void *)3);
      pthread_join(thread, &result);
      sum += (long)result;
    }
    printf("%ld cleaned %d destroyed %d\n", sum, cleaned, destroyed);
  } else if (!strcmp(way, "cancelled")) {
    int cancelled = 0;
    for (long i = 0; i < 30; i++) {
      pthread_create(&thread, NULL, waits, (void *)(i % 10));
      sem_wait(&ready);
      usleep(2000);
      pthread_cancel(thread);
      pthread_join(thread, &result);
      cancelled += result == PTHREAD_CANCELED;
    }
    printf("%d cleaned %d destroyed %d\n", cancelled, cleaned, destroyed);
  } else if (!strcmp(way, "c11")) {
    int sum = 0, value = 0;
    thrd_t standard;
    for (int i = 0; i < 20; i++) {
      thrd_create(&standard, small, i % 2 ? &value : NULL);
      thrd_join(standard, &value);
      sum += value;
    }
    printf("%d\n", sum);
  } else if (!strcmp(way, "detached")) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int started = 0;
    for (int i = 0; i < 200; i++) { started += pthread_create(&thread, &attributes, returns, NULL) == 0; if (i % 8 == 7) usleep(30000); }
    while (destroyed < started) usleep(1000);
    printf("%d %d\n", started, destroyed);
    pthread_exit(NULL); // the main thread too; the process ends with its last thread
  } else if (!strcmp(way, "small-stacks")) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_t all[20];
    char *stacks = mmap(NULL, 20 * 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 20; i++) {
      // Half of them on stacks of the program's own, side by side, with no guard between them.
      if (i % 2) pthread_attr_setstack(&attributes, stacks + i * 16384, 16384);
      else { pthread_attr_init(&attributes); pthread_attr_setstacksize(&attributes, 16384); }
      if (pthread_create(&all[i], &attributes, tiny, (void *)1)) return 4;
    }
    long sum = 0;
    for (int i = 0; i < 20; i++) { pthread_join(all[i], &result); sum += (long)result; }
    printf("%ld\n", sum);
  } else if (!strcmp(way, "thousand")) {
    static pthread_t all[1000];
    long sum = 0;
    for (int i = 0; i < 1000; i++) if (pthread_create(&all[i], NULL, once, (void *)1)) return 4;
    for (int i = 0; i < 1000; i++) { pthread_join(all[i], &result); sum += (long)result; }
    printf("%ld\n", sum);
  } else if (!strcmp(way, "alive")) { // a thousand at the same time
    static pthread_t all[1000];
    long sum = 0;
    for (long i = 0; i < 1000; i++) if (pthread_create(&all[i], NULL, waits, (void *)10)) return 4;
    for (int i = 0; i < 1000; i++) sem_wait(&ready);
    for (int i = 0; i < 1000; i++) { pthread_cancel(all[i]); pthread_join(all[i], &result); sum += result == PTHREAD_CANCELED; }
    printf("%ld cleaned %d\n", sum, cleaned);
  } else return 2;
  return 0;
}
