// Allocates all the time, on stacks that it tells the watching library of; prints how many calls
// were counted. `allocating guilty` has a handler of its own that allocates on an alternate stack.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void my_stack_is(char *, char *) __attribute__((weak));
long forbidden_calls(void) __attribute__((weak));
enum { SIZE = 256 << 10, THREADS = 3, ROUNDS = 1000000 };
static char *stacks;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void allocate(int rounds) {
  void *held[16] = {0};
  for (int i = 0; i < rounds; i++) {
    void **place = &held[i % 16];
    *place = i % 3 ? realloc(*place, 16 + i % 2000) : (free(*place), i % 2 ? malloc(i % 5000) : calloc(1 + i % 7, 100));
    if (i % 50 == 0) { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); }
  }
  for (int i = 0; i < 16; i++) free(held[i]);
}

static void *run(void *number) {
  char *low = stacks + (long)number * SIZE;
  if (my_stack_is) my_stack_is(low, low + SIZE);
  allocate(ROUNDS);
  return NULL;
}

static void *nest(int depth, char **top) { return depth ? nest(depth - 1, top) : (allocate(2000), (void *)top); }
static void guilty(int signal) { void *volatile memory = malloc(signal); free(memory); }

int main(int count, char **arguments) {
  char *top = (char *)(arguments + count + 1);
  if (my_stack_is) my_stack_is(top - (4 << 20), top);
  if (count > 1 && !strcmp(arguments[1], "guilty")) {
    static char other[65536];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_handler = guilty, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    return 0;
  }
  stacks = mmap(NULL, THREADS * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_t threads[THREADS];
  pthread_attr_t attributes;
  for (long i = 0; i < THREADS; i++) {
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stacks + i * SIZE, SIZE);
    pthread_create(&threads[i], &attributes, run, (void *)i);
  }
  for (int i = 0; i < 100; i++) nest(30, arguments);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  printf("%ld\n", forbidden_calls ? forbidden_calls() : -1);
  return 0;
}
