// Recursion on split stacks (gcc -fsplit-stack), which grow piece by piece: it goes one call deeper
// each time, and computes wherever little is left of a piece below which nothing is mapped yet.
#include <stdio.h>
#include <time.h>

static volatile unsigned long sink;
static int places;

static __attribute__((no_split_stack, noinline)) void burn(void) {
  for (int i = 0; i < 3000000; i++) sink += i;
}
static __attribute__((noinline)) int descend(int depth) {
  volatile char frame[200];
  frame[0] = depth % 2;
  if (depth > 0) return descend(depth - 1) + frame[0];
  char *end;
  __asm__("mov %%fs:0x70, %0" : "=r"(end));
  long left = (char *)__builtin_frame_address(0) - end;
  if (left > 0 && left < 2000) {
    places++;
    burn();
  }
  return 0;
}

int main(void) {
  long sum = 0;
  for (int depth = 0; depth < 6000; depth++) sum += descend(depth);
  printf("split %ld, near an end: %d\n", sum, places > 5);
  return 0;
}
