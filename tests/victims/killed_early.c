// Children, one after the other, each of which is killed by a thread of its own that has used so
// many microseconds of CPU time by then: `killed_early COUNT MICROSECONDS`.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile long sink;
static long limit_us;

static void *works(void *unused) {
  struct timespec now;
  do {
    for (int i = 0; i < 1000; i++) sink += i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while (now.tv_sec * 1000000 + now.tv_nsec / 1000 < limit_us);
  kill(getpid(), SIGKILL);
  return unused;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  limit_us = atol(arguments[2]);
  for (int i = atoi(arguments[1]); i > 0; i--) {
    pid_t child = fork();
    if (child < 0) return 1;
    if (!child) {
      pthread_t thread;
      if (!pthread_create(&thread, NULL, works, NULL)) pthread_join(thread, NULL);
      _exit(1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) return 1;
  }
  return 0;
}
