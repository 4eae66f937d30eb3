// Runs /bin/true many times, one after the other: `many_execs COUNT` prints the µs of CPU time that
// each took.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

int main(int count, char **arguments) {
  int runs = count > 1 ? atoi(arguments[1]) : 100;
  char *program[] = {"true", NULL};
  for (int i = 0; i < runs; i++) {
    pid_t pid;
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, program, environ)) return 1;
    waitpid(pid, NULL, 0);
  }
  struct rusage used;
  getrusage(RUSAGE_CHILDREN, &used);
  double us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  printf("%.1f\n", us / runs);
  return 0;
}
