// Waits for two children, one after the other, in the way asked for; each has MEGABYTES mapped and
// touched, so that its end takes a while. Each child prints its pid and what its own clock showed
// right before its end, ns; then the parent what the kernel charged it, ns. Usage: waiters WAY
// MEGABYTES
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int child(int megabytes) {
  long long until = cpu() + 60000000;
  while (cpu() < until) {}
  char *big = mmap(NULL, (size_t)megabytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (big == MAP_FAILED) return 1;
  char line[80];
  int length = snprintf(line, sizeof line, "%d %lld ", (int)getpid(), cpu());
  if (write(1, line, (size_t)length) != length) return 1;
  return 3;
}

static long long children(void) {
  struct rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  long long user = usage.ru_utime.tv_sec * 1000000ll + usage.ru_utime.tv_usec;
  return (user + usage.ru_stime.tv_sec * 1000000ll + usage.ru_stime.tv_usec) * 1000;
}

static int by_command(const char *self, const char *megabytes, int piped) {
  char command[4200];
  snprintf(command, sizeof command, "exec '%s' child %s", self, megabytes);
  if (!piped) return system(command);
  FILE *pipe = popen(command, "r");
  for (int c; (c = getc(pipe)) != EOF;) putchar(c);
  fflush(stdout);
  return pclose(pipe);
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  const char *way = arguments[1];
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); // huge pages are given back in a moment
  int megabytes = atoi(arguments[2]);
  if (!strcmp(way, "child")) return child(megabytes);
  for (int i = 0; i < 2; i++) {
    long long before = children();
    int status = 0;
    if (!strcmp(way, "system") || !strcmp(way, "pclose")) {
      status = by_command(arguments[0], arguments[2], way[0] == 'p');
    } else {
      pid_t pid = fork();
      if (pid == 0) _exit(child(megabytes));
      siginfo_t info = {0};
      if (!strcmp(way, "wait")) {
        if (wait(&status) != pid) return 1;
      } else if (!strcmp(way, "waitpid")) {
        if (waitpid(pid, &status, 0) != pid) return 1;
      } else if (!strcmp(way, "polled")) {
        pid_t found;
        while ((found = waitpid(-1, &status, WNOHANG)) == 0) usleep(3000);
        if (found != pid) return 1;
      } else {
        int any = !strcmp(way, "waitid-any");
        if (waitid(any ? P_ALL : P_PID, any ? 0 : (id_t)pid, &info, WEXITED | WNOWAIT) != 0 || info.si_pid != pid) return 1;
        info = (siginfo_t){0};
        if (waitid(any ? P_ALL : P_PID, any ? 0 : (id_t)pid, &info, WEXITED) != 0) return 1;
        if (info.si_pid != pid || info.si_signo != SIGCHLD || info.si_code != CLD_EXITED) return 1;
        status = info.si_status << 8;
        if (waitid(P_PID, (id_t)pid, &info, WEXITED) == 0) return 1; // it is taken
      }
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) return 1;
    printf("%lld\n", children() - before);
    fflush(stdout);
  }
  return 0;
}
