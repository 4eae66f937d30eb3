/* Blocks all signals, and then has children say what they have blocked: one of fork, one that
 * becomes another program, and one of posix_spawn; before and after it was sampled for a while. */
#define _GNU_SOURCE
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say(const char *who) {
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  printf("%s:", who);
  for (int signal = 1; signal < 32; signal++)
    if (sigismember(&blocked, signal)) printf(" %d", signal);
  printf("\n");
  fflush(stdout);
}

static void work(void) {
  struct timespec used;
  do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  while (used.tv_sec * 1000 + used.tv_nsec / 1000000 < 100);
}

int main(int count, char **arguments) {
  if (count > 1) {
    say(arguments[1]);
    return 0;
  }
  extern char **environ;
  char *spawned[] = {"inherits_mask", "spawned", NULL};
  sigset_t all, some;
  sigfillset(&all);
  sigemptyset(&some);
  sigaddset(&some, SIGUSR1);
  sigprocmask(SIG_SETMASK, &all, NULL);
  for (int turn = 0; turn < 3; turn++) {
    if (turn == 1) work();
    if (turn == 2) sigprocmask(SIG_SETMASK, &some, NULL);
    if (!fork()) {
      say("child");
      if (!fork()) {
        say("its child");
        return 0;
      }
      wait(NULL);
      execl("/proc/self/exe", "inherits_mask", "program", NULL);
    }
    wait(NULL);
    pid_t pid;
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, spawned, environ)) return 1;
    wait(NULL);
    if (posix_spawnp(&pid, "/proc/self/exe", NULL, NULL, spawned, environ)) return 1;
    wait(NULL);
    say("parent");
  }
  return 0;
}
