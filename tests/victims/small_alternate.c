// Gives itself an alternate stack for the frame that the kernel really makes, and 1.5 KB, between
// two forbidden pages; then burns. What the kernel announces (AT_MINSIGSTKSZ) is three times as
// much on processors with AMX.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

static volatile size_t frame;

// Red zone, return address, ucontext and siginfo, and the processor's state with what the kernel
// says of its size.
static void measure(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info;
  const char *state = (const char *)((ucontext_t *)context)->uc_mcontext.fpregs;
  frame = 704 + *(const unsigned *)(state + 468);
}

int main(void) {
  struct sigaction action = {.sa_sigaction = measure, .sa_flags = SA_SIGINFO};
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  size_t size = frame + 1536;
  size_t room = (size + 4095) & ~4095ul;
  char *place = mmap(NULL, room + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(place + 4096, room, PROT_READ | PROT_WRITE);
  // The stack grows down into what is left of its first page, which must stay untouched, and then
  // into the forbidden one.
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
