// What not to do: a profiler whose handler uses 6 KB of whatever stack it lands on.
#include <signal.h>
#include <sys/time.h>
static void handler(int signal) {
  volatile char frame[6144];
  for (unsigned i = 0; i < sizeof frame; i += 64) frame[i] = (char)signal;
}
__attribute__((constructor)) static void start(void) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
  struct itimerval every = {{0, 4000}, {0, 4000}};
  sigaction(SIGPROF, &action, 0);
  setitimer(ITIMER_PROF, &every, 0);
}
