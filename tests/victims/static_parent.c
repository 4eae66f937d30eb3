// Starts programs and works itself: `static_parent PROGRAM [ARGUMENT…]` runs the program twice, by
// fork and exec and by posix_spawn, and works before, between and after. Says its CPU time, and
// exits with the status of the last one.
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
static volatile unsigned long sink;
__attribute__((noinline)) void parents_work(void) {
  struct timespec from, t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
  do {
    for (long i = 0; i < 100000; i++) sink += i * i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while ((t.tv_sec - from.tv_sec) * 1000 + (t.tv_nsec - from.tv_nsec) / 1000000 < 150);
}
__attribute__((noinline)) void childs_work(void) { parents_work(); sink++; }
int main(int count, char **arguments) {
  int status;
  pid_t pid;
  parents_work();
  if (!(pid = fork())) {
    childs_work();
    execv(arguments[1], arguments + 1);
    _exit(9);
  }
  waitpid(pid, &status, 0);
  parents_work();
  if (posix_spawn(&pid, arguments[1], NULL, NULL, arguments + 1, environ)) return 8;
  waitpid(pid, &status, 0);
  parents_work();
  return count > 0 ? WEXITSTATUS(status) : 7;
}
