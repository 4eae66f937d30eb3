// Starts a program behind the preload library's back: by system calls of its own, and with an empty
// environment, or -DKEEPS=".." with one variable of its own. `bare_exec PROGRAM [ARGUMENT…]` exits
// with its status.
#define _GNU_SOURCE
#include "bare.h"
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments) {
  char *nothing[] = {NULL, NULL};
#ifdef KEEPS
  const char *kept = getenv(KEEPS);
  if (kept) *nothing = (char *)kept - strlen(KEEPS "=");
#endif
  int status = 0;
  pid_t pid = vfork();
  if (!pid) {
    bare(SYS_execve, arguments[1], arguments + 1, nothing);
    _exit(9);
  }
  waitpid(pid, &status, 0);
  return count > 1 ? WEXITSTATUS(status) : 8;
}
