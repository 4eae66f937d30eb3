// Sleeps in a call until a SIGPROF of its own comes: `own_wakes CALL` prints how the call ended,
// how often the handler ran, and whether that was when the signal came, or only when another one
// did, three seconds later. The signal comes when the program sleeps.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int runs, late;
static void handle(int signal) {
  runs++;
  if (signal == SIGUSR1) late = 1;
}

static int sleeps(pid_t pid) {
  char path[40], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
  fclose(file);
  return state == 'S';
}

int main(int count, char **arguments) {
  const char *call = count > 1 ? arguments[1] : "";
  struct sigaction action = {.sa_handler = handle};
  sigaction(SIGPROF, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  pid_t parent = getpid(), child = fork();
  if (!child) {
    for (int seen = 0; seen < 10; usleep(10000)) seen = sleeps(parent) ? seen + 1 : 0;
    kill(parent, SIGPROF);
    sleep(3);
    kill(parent, SIGUSR1);
    _exit(0);
  }
  // The first of all may wait for the end of a sleeping call, but for one that only signals end.
  if (strcmp(call, "pause") && strcmp(call, "sigsuspend")) raise(SIGPROF);
  struct timespec limit = {8, 0};
  struct timeval limits = {8, 0};
  sigset_t other;
  sigemptyset(&other);
  sigaddset(&other, SIGUSR2);
  int pipes[2];
  static char buffer[1 << 20];
  if (pipe(pipes)) return 1;
  long result = -2;
  errno = 0;
  sigset_t none;
  sigemptyset(&none);
  int known = runs;
  do {
    if (!strcmp(call, "pause")) result = pause();
    else if (!strcmp(call, "sigsuspend")) result = sigsuspend(&none);
    else if (!strcmp(call, "poll")) result = poll(NULL, 0, 8000);
    else if (!strcmp(call, "nanosleep")) result = nanosleep(&limit, NULL);
    else if (!strcmp(call, "select")) result = select(0, NULL, NULL, NULL, &limits);
    else if (!strcmp(call, "sigtimedwait")) result = sigtimedwait(&other, NULL, &limit);
    else if (!strcmp(call, "read")) result = read(pipes[0], buffer, sizeof buffer);
    // From now on it must take EINTR that is not its own.
  } while (result == -1 && errno == EINTR && runs == known && strcmp(call, "pause") && strcmp(call, "sigsuspend"));
  int error = errno;
  printf("%s: %ld %s, %d runs, %s\n", call, result, strerror(error), runs, late ? "late" : "at once");
  fflush(stdout);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  return 0;
}
