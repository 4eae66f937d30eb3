// Waits for children, one after the other, while the handler of SIGCHLD takes all that have ended:
// the kernel gives each child to who is in the wait, before the handler comes. Prints how many each
// of the two has got. Usage: reapers WAY
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t by_handler;

static void take_all(int signal) {
  (void)signal;
  int before = errno;
  while (waitpid(-1, NULL, WNOHANG) > 0) by_handler++;
  errno = before;
}

// Ends once the parent waits.
static void child(pid_t parent) {
  char path[40], stat[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)parent);
  for (int asleep = 0; asleep < 3; usleep(1000)) {
    int file = open(path, O_RDONLY);
    ssize_t length = read(file, stat, sizeof stat - 1);
    close(file);
    if (length <= 0) _exit(1);
    stat[length] = 0;
    asleep = strrchr(stat, ')')[2] == 'S' ? asleep + 1 : 0;
  }
  _exit(7);
}

int main(int count, char **arguments) {
  if (count < 2) return 2;
  const char *way = arguments[1];
  struct sigaction action = {.sa_handler = take_all, .sa_flags = SA_RESTART};
  sigaction(SIGCHLD, &action, NULL);
  int by_wait = 0;
  for (int i = 0; i < 20; i++) {
    pid_t self = getpid(), pid = fork();
    if (pid == 0) child(self);
    siginfo_t info = {0};
    int status = 0;
    if (!strcmp(way, "wait")) {
      by_wait += wait(&status) == pid && WEXITSTATUS(status) == 7;
    } else if (!strcmp(way, "waitpid")) {
      by_wait += waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7;
    } else if (!strcmp(way, "unasked")) {
      by_wait += waitid(P_PID, (id_t)pid, NULL, WEXITED) == 0;
    } else {
      int any = !strcmp(way, "waitid-any");
      int result = waitid(any ? P_ALL : P_PID, any ? 0 : (id_t)pid, &info, WEXITED);
      by_wait += result == 0 && info.si_pid == pid && info.si_uid == getuid() && info.si_status == 7;
    }
  }
  printf("%d by waiting, %d by the handler\n", by_wait, (int)by_handler);
  return 0;
}
