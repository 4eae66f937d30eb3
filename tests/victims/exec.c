// Replaces itself, or starts itself, again and again: `exec HOW COUNT` ends with "end" and status
// 7. HOW is the function by which it does so; a leading "threads-" lets other threads burn
// meanwhile, "worker-" execs from one of them.
#define _GNU_SOURCE
#include "bare.h"
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <errno.h>

extern char **environ;
static char *self, *how, *plain_how, next_count[16];

static void burn(long us) {
  struct timespec t;
  long start, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  start = now = t.tv_sec * 1000000 + t.tv_nsec / 1000;
  while (now - start < us) {
    for (volatile int i = 0; i < 2000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    now = t.tv_sec * 1000000 + t.tv_nsec / 1000;
  }
}

static void *burn_forever(void *unused) { for (;;) burn(1000); return unused; }

static void go(const char *with) {
  char *arguments[] = {self, how, next_count, NULL};
  if (!strcmp(with, "execve")) execve(self, arguments, environ);
  else if (!strcmp(with, "execv")) execv(self, arguments);
  else if (!strcmp(with, "execvp")) execvp(self, arguments);
  else if (!strcmp(with, "execvpe")) execvpe(self, arguments, environ);
  else if (!strcmp(with, "execl")) execl(self, self, how, next_count, NULL);
  else if (!strcmp(with, "execlp")) execlp(self, self, how, next_count, NULL);
  else if (!strcmp(with, "execle")) execle(self, self, how, next_count, NULL, environ);
  else if (!strcmp(with, "execle-many")) // more arguments than registers hold
    execle(self, self, how, next_count, "a", "b", "c", "d", "e", "f", "g", "h", NULL, environ);
  else if (!strcmp(with, "fexecve")) fexecve(open(self, O_RDONLY | O_CLOEXEC), arguments, environ);
  else if (!strcmp(with, "execveat")) execveat(AT_FDCWD, self, arguments, environ, 0);
  else if (!strcmp(with, "raw")) bare(SYS_execve, self, arguments, environ);
  perror(with);
  _exit(99);
}

static void *go_in_thread(void *unused) { burn(1000); go(plain_how); return unused; }

static int start(const char *with) {
  char *arguments[] = {self, how, "0", NULL};
  pid_t pid = -1;
  int status = -1;
  if (!strcmp(with, "posix_spawn")) posix_spawn(&pid, self, NULL, NULL, arguments, environ);
  else if (!strcmp(with, "posix_spawnp")) posix_spawnp(&pid, self, NULL, NULL, arguments, environ);
  else if (!strcmp(with, "vfork")) { pid = vfork(); if (pid == 0) { execve(self, arguments, environ); _exit(99); } }
  else if (!strcmp(with, "fork")) { pid = fork(); if (pid == 0) { burn(500); execve(self, arguments, environ); _exit(99); } }
  else if (!strcmp(with, "system")) {
    char line[5000];
    snprintf(line, sizeof line, "exec %s %s 0", self, how);
    status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
  } else return -1;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return -2;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

int main(int count, char **arguments) {
  self = arguments[0];
  how = plain_how = arguments[1];
  long left = strtol(arguments[2], NULL, 10);
  if (!strcmp(how, "execle-many") && count > 3 && (count != 11 || strcmp(arguments[10], "h"))) return 98;
  burn(1500);
  if (left == 0) { puts("end"); return 7; }
  snprintf(next_count, sizeof next_count, "%ld", left - 1);
  if (!strncmp(how, "fails-", 6)) {
    char *nothing[] = {"nothing", NULL};
    errno = 0;
    int result = !strcmp(how, "fails-execve") ? execve("/nonexistent/program", nothing, environ)
               : !strcmp(how, "fails-execlp") ? execlp("no-such-program-anywhere", "nothing", NULL)
                                              : execv("/", nothing);
    int error = errno;
    burn(200000);
    printf("%d %s\n", result, strerror(error));
    return 7;
  }
  if (!strncmp(how, "threads-", 8) || !strncmp(how, "worker-", 7)) {
    plain_how = strchr(how, '-') + 1;
    pthread_t thread;
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, burn_forever, NULL);
    burn(1000);
    if (how[0] == 'w') { pthread_create(&thread, NULL, go_in_thread, NULL); burn_forever(NULL); }
  }
  int first = start(plain_how);
  if (first == -1) go(plain_how);
  for (long i = 0; i < left; i++) {
    int status = i ? start(plain_how) : first;
    if (status != 7) { printf("child %ld: %d\n", i, status); return 97; }
  }
  puts("end");
  return 7;
}
