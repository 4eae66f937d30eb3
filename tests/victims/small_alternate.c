// Gives itself the smallest alternate stack that the kernel accepts, and 1.5 KB, between two forbidden pages; then burns.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
int main(void) {
  size_t size = getauxval(AT_MINSIGSTKSZ) + 1536;
  size_t room = (size + 4095) & ~4095ul;
  char *place = mmap(NULL, room + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(place + 4096, room, PROT_READ | PROT_WRITE);
  // The stack grows down into what is left of its first page, which must stay untouched, and then into the forbidden one.
  for (size_t i = 0; i < room - size; i++) place[4096 + i] = 0x5a;
  stack_t stack = {.ss_sp = place + 4096 + (room - size), .ss_size = size};
  if (sigaltstack(&stack, NULL)) return 3;
  struct timespec t;
  do {
    for (volatile int i = 0; i < 20000; i++) {}
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  } while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < 300);
  size_t damaged = 0;
  for (size_t i = 0; i < room - size; i++) damaged += place[4096 + i] != 0x5a;
  puts(damaged ? "damaged" : "intact");
  return 0;
}
