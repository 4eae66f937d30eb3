// Works in a signal handler: main, interrupted, and under it the handler.
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
static volatile unsigned long sink;
static volatile int done;
__attribute__((noinline)) void work(void) {
  clock_t end = clock() + CLOCKS_PER_SEC;
  while (clock() < end)
    for (long i = 0; i < 1000000; i++) sink += i;
}
__attribute__((noinline)) void handler(int number) { work(); done = number; }
__attribute__((noinline)) void interrupted(void) { while (!done) sink++; }
int main(void) {
  signal(SIGALRM, handler);
  struct itimerval once = {.it_value = {.tv_usec = 20000}};
  setitimer(ITIMER_REAL, &once, NULL);
  interrupted();
  puts("end");
  return 0;
}
