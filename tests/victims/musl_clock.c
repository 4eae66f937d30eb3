// Reads the clock, prints numbers and measures strings for a second of CPU time: functions of libc,
// which musl has no tables for.
#include <stdio.h>
#include <string.h>
#include <time.h>

static volatile long sink;

int main(void) {
  struct timespec now;
  do {
    for (int i = 0; i < 3000; i++) {
      char text[64];
      snprintf(text, sizeof text, "%d %ld", i, (long)sink);
      sink += (long)strlen(text);
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    }
  } while (now.tv_sec < 1);
  return 0;
}
