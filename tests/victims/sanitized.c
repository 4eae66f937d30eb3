// For AddressSanitizer: computes, with memory of the heap, and exits with status 6.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile double sink;

static void *work(void *unused) {
  clock_t end = clock() + CLOCKS_PER_SEC / 10;
  while (clock() < end) {
    char *memory = malloc(1000);
    memset(memory, 1, 1000);
    for (int i = 0; i < 100000; i++) sink += memory[i % 1000];
    free(memory);
  }
  return unused;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  pthread_join(thread, NULL);
  work(NULL);
  puts("sanitized");
  return 6;
}
