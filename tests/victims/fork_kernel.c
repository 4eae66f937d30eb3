// Fork children that live in the kernel: without arguments one in a single long call, whose CPU
// time is printed (ns); `execs COUNT` many that replace themselves at once by a system call that no
// library sees, and prints how many were killed.
#define _GNU_SOURCE
#include "bare.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long cpu(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void one_long_call(void) {
  int ends[2];
  if (pipe(ends) != 0) exit(1);
  pid_t child = fork();
  if (child == 0) {
    void *memory = mmap(NULL, (size_t)3 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) _exit(1);
    long used = cpu();
    _exit(write(ends[1], &used, sizeof used) != sizeof used);
  }
  close(ends[1]);
  long used = 0;
  int status;
  if (read(ends[0], &used, sizeof used) != sizeof used || waitpid(child, &status, 0) != child || status != 0) exit(1);
  printf("%ld\n", used);
}

int main(int count, char **arguments) {
  if (count < 3) {
    one_long_call();
    return 0;
  }
  int times = atoi(arguments[2]), killed = 0;
  for (int i = 0; i < times; i++) {
    pid_t child = fork();
    if (child == 0) {
      char *program[] = {"/bin/true", NULL}, *environment[] = {NULL};
      bare(SYS_execve, program[0], program, environment);
      _exit(1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) killed++;
  }
  printf("%d of %d killed\n", killed, times);
  return 0;
}
