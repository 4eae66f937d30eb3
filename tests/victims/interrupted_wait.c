// Waits in poll() while a signal of its own comes all the time, whose handler works in the kernel:
// all of that is within poll(), but poll() does none of it. Usage: interrupted_wait MILLISECONDS
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int zero;
static char block[48 << 10];

static void tick(int unused) {
  (void)unused;
  for (int i = 0; i < 400; i++) if (read(zero, block, sizeof block) <= 0) _exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int count, char **arguments) {
  double end = now() + (count > 1 ? atof(arguments[1]) : 0) * 1e-3;
  zero = open("/dev/zero", O_RDONLY);
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, NULL, &timer);
  struct itimerspec often = {{0, 3000000}, {0, 3000000}};
  timer_settime(timer, 0, &often, NULL);
  while (now() < end)
    if (poll(NULL, 0, 100) != -1 || errno != EINTR) { perror("poll"); return 1; }
  return 0;
}
