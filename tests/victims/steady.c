// Burns CPU time below a stack of some depth, in one place after another: the main thread, another
// thread, a child that the main thread forks, one that another thread forks, and (`context`) a
// coroutine. `steady PLACE…`; each says its place and thread id.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static const char *place;
static volatile long sink;

static void burn(void) {
  struct timespec t, began;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
  do {
    for (int i = 0; i < 2000000; i++) sink += i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while ((t.tv_sec - began.tv_sec) * 1000 + (t.tv_nsec - began.tv_nsec) / 1000000 < 300);
}

// Frames of two pages together: the stack is a few dozen pages deep.
__attribute__((noinline)) static void deep(int levels) {
  char frame[400];
  memset(frame, levels, sizeof frame);
  if (levels > 0) deep(levels - 1);
  else burn();
  sink += frame[levels];
}

static void here(void) {
  printf("%s %d\n", place, gettid());
  fflush(stdout);
  deep(60);
}

static void *thread(void *unused) {
  here();
  return unused;
}

static void child(void) {
  pid_t pid = fork();
  if (pid == 0) {
    here();
    _exit(0);
  }
  waitpid(pid, NULL, 0);
}

static void *forking(void *unused) {
  child();
  return unused;
}

static void in_thread(void *(*function)(void *)) {
  pthread_t id;
  pthread_create(&id, NULL, function, NULL);
  pthread_join(id, NULL);
}

static void in_context(void) {
  static ucontext_t outside, inside;
  getcontext(&inside);
  inside.uc_stack.ss_size = 1 << 17;
  inside.uc_stack.ss_sp = malloc(inside.uc_stack.ss_size);
  inside.uc_link = &outside;
  makecontext(&inside, here, 0);
  swapcontext(&outside, &inside);
}

int main(int count, char **places) {
  for (int i = 1; i < count; i++) {
    place = places[i];
    if (!strcmp(place, "main")) here();
    if (!strcmp(place, "thread")) in_thread(thread);
    if (!strcmp(place, "child")) child();
    if (!strcmp(place, "child-of-thread")) in_thread(forking);
    if (!strcmp(place, "context")) in_context();
  }
  return 0;
}
