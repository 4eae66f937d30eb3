// Loads a library of Go's and calls it from several threads, some of which have handlers and stacks
// for signals of their own: `program LIBRARY`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int (*preempted)(void), (*recovered)(void), (*deep)(int);
static volatile int counted;
static volatile unsigned long sink;

static void count(int signal) {
  __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 100000; i++) sink += i;
  (void)signal;
}
static void *work(void *own) {
  stack_t stack = {.ss_size = 65536}, old;
  if (own) {
    stack.ss_sp = malloc(stack.ss_size);
    sigaltstack(&stack, NULL);
  }
  long sum = 0;
  for (int i = 0; i < 20; i++) {
    for (int k = 0; k < 100000; k++) sink += k;
    pthread_kill(pthread_self(), i % 2 ? SIGUSR1 : SIGUSR2);
    sum += deep(1000 + i) + recovered();
  }
  if (own) {
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, &old);
    if (old.ss_sp != stack.ss_sp) puts("another stack");
    free(stack.ss_sp);
  }
  return (void *)sum;
}

int main(int count_, char **arguments) {
  struct sigaction action = {.sa_handler = count, .sa_flags = SA_ONSTACK | SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, NULL);
  for (int k = 0; k < 20000000; k++) sink += k;
  void *library = count_ > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
  if (!library) { puts(dlerror()); return 1; }
  preempted = (int (*)(void))dlsym(library, "Preempted");
  recovered = (int (*)(void))dlsym(library, "Recovered");
  deep = (int (*)(int))dlsym(library, "Deep");
  printf("preempted %d\n", preempted());
  for (int round = 0; round < 2; round++) {
    pthread_t threads[6];
    for (long i = 0; i < 6; i++) pthread_create(&threads[i], NULL, work, (void *)(i % 2));
    for (int i = 0; i < 6; i++) {
      void *sum;
      pthread_join(threads[i], &sum);
      printf("sum %ld\n", (long)sum);
    }
  }
  printf("main %ld, counted %d, preempted %d\n", (long)work(NULL), counted, preempted());
  return 0;
}
