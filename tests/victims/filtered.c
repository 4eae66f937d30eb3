// Installs a seccomp filter for perf_event_open (or, for `files`, for making files), then goes on:
// `filtered refuse|deny|kill|files [PROGRAM ARGUMENT…]`; without a program it burns in a
// thread of its own, for `files` in a child; for `own-files` that child installs it, at once.
// `filtered probe` asks for the strict mode as libseccomp does to see whether the kernel knows it,
// and burns.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void *burn(void *unused) {
  struct timespec t;
  do {
    for (volatile int i = 0; i < 20000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < 300);
  return unused;
}
int main(int count, char **arguments) {
  unsigned error = !strcmp(arguments[1], "deny") ? EPERM : EACCES;
  unsigned answer = !strcmp(arguments[1], "kill") ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | error;
  struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, answer),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_filter files[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  int own = !strcmp(arguments[1], "own-files");
  if (own || !strcmp(arguments[1], "files")) program = (struct sock_fprog){sizeof files / sizeof *files, files};
  if (!strcmp(arguments[1], "probe")) {
    long refused = syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL);
    burn(NULL);
    puts(refused ? "end" : "strict");
    return 0;
  }
  if (own && fork()) {
    wait(NULL);
    puts("end");
    return 0;
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) { perror("seccomp"); return 3; }
  if (own) { burn(NULL); _exit(0); }
  if (count > 2) { execvp(arguments[2], arguments + 2); return 4; }
  if (!strcmp(arguments[1], "files")) {
    if (!fork()) { burn(NULL); _exit(0); }
    wait(NULL);
    puts("end");
    return 0;
  }
  pthread_t thread;
  pthread_create(&thread, NULL, burn, NULL);
  pthread_join(thread, NULL);
  puts("end");
  return 0;
}
