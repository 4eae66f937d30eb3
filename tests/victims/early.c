// A library whose constructor uses what the preload library stands in front of, before or after
// that one is set up.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile sig_atomic_t seen;
static void on_signal(int signal) { seen = signal; }
static void *run(void *value) { return value; }
__attribute__((constructor)) static void early(void) {
  sigset_t set, old;
  pthread_t thread;
  void *result = NULL;
  struct sigaction action = {.sa_handler = on_signal}, before;
  int first = signal(SIGPROF, on_signal) == SIG_DFL;
  raise(SIGPROF);
  int second = seen == SIGPROF && sigaction(SIGPROF, &action, &before) == 0 && before.sa_handler == on_signal;
  signal(SIGPROF, SIG_DFL);
  sigfillset(&set);
  sigprocmask(SIG_BLOCK, &set, &old);
  sigprocmask(SIG_SETMASK, &old, NULL);
  pthread_create(&thread, NULL, run, (void *)5);
  pthread_join(thread, &result);
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) _exit(6);
  waitpid(pid, &status, 0);
  poll(NULL, 0, 1);
  char line[64];
  int length = snprintf(line, sizeof line, "early %d %d %ld %d\n", first, second, (long)result, WEXITSTATUS(status));
  if (write(1, line, length) != length) abort();
}
