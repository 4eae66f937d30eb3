// Three fork children that cannot write where their parent can: `drops user` (they become another
// user), `chroot`, `redirected` (as user, with a file of theirs as standard error, which the parent
// then prints). Each computes for a while. Run as root.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "";
  FILE *log = tmpfile();
  for (int i = 0; i < 3; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      if (!strcmp(way, "chroot") && chroot("/proc/self/fdinfo") != 0) _exit(9);
      if (!strcmp(way, "redirected")) dup2(fileno(log), 2);
      if (strcmp(way, "chroot") && setresuid(65534, 65534, 65534) != 0) _exit(9);
      struct timespec t;
      do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
      while (t.tv_sec == 0 && t.tv_nsec < 150000000);
      _exit(5);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 5) return 1;
  }
  rewind(log);
  for (int c; (c = getc(log)) != EOF;) putchar(c);
  puts("done");
  return 0;
}
