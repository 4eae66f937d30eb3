// Has a sigaction of its own in front of libc's, which it finds by the name that libc has for
// itself, as Erlang's emulator does: prints how often its handler ran, and what is set.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>

static volatile int handled, asked;

int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
  static int (*next)(int, const struct sigaction *, struct sigaction *);
  if (!next) next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "__sigaction");
  asked++;
  return next(number, new, old);
}
int __sigaction(int number, const struct sigaction *new, struct sigaction *old) { return sigaction(number, new, old); }

static void handle(int number) { handled += number; }

int main(void) {
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART}, before;
  for (int i = 0; i < 2; i++) {
    int number = i ? SIGPROF : SIGUSR1;
    sigaction(number, &action, NULL);
    sigaction(number, NULL, &before);
    raise(number);
    printf("%d %d %d\n", before.sa_handler == handle, handled, asked);
  }
  for (volatile int i = 0; i < 100000000; i++) {}
  return 0;
}
