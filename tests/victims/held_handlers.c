// What a program does in, and out of, a handler of its own that comes in a sleeping call.
// `held_handlers WAY [PROGRAM]`:
//   pause sigsuspend poll sleep ppoll   handlers work: three parts of CPU time in work_a(), one in
//   work_b() jump cancel                         the call is left for good, and work_after()
//   follows start become                        a program is started from the handler, or takes the
//   place of this one after a jump out of it
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static char **command;
static volatile int turns, done;
static jmp_buf back;

static void burn(long ms) {
  struct timespec from, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
  do {
    for (volatile int i = 0; i < 20000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - from.tv_sec) * 1000000 + (now.tv_nsec - from.tv_nsec) / 1000 < ms * 1000);
}
__attribute__((noinline)) void work_a(void) { burn(30); __asm__ volatile(""); }
__attribute__((noinline)) void work_b(void) { burn(10); __asm__ volatile(""); }
__attribute__((noinline)) void work_after(void) { burn(400); __asm__ volatile(""); }

static void work(int signal) {
  if (turns == 15) return; // where others use the processor the next one may be due already
  turns++;
  work_a();
  work_b();
  (void)signal;
}
static void jump(int signal) { longjmp(back, signal); }
static void start(int signal) {
  int status;
  pid_t pid = fork();
  if (!pid) { execv(command[0], command); _exit(9); }
  waitpid(pid, &status, 0);
  if (posix_spawn(&pid, command[0], NULL, NULL, command, environ) == 0) waitpid(pid, &status, 0);
  done = 1;
  (void)signal;
}

static void every(long us, void (*handler)(int), int again) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval when = {{0, again ? us : 0}, {0, us}};
  setitimer(ITIMER_REAL, &when, NULL);
}

static void clean(void *unused) { (void)unused; work_after(); }
static void *sleeper(void *unused) {
  pthread_cleanup_push(clean, unused);
  poll(NULL, 0, 5000);
  pthread_cleanup_pop(0);
  return unused;
}

int main(int count, char **arguments) {
  const char *way = arguments[1];
  command = arguments + 2;
  sigset_t none;
  sigemptyset(&none);
  if (!strcmp(way, "jump") || !strcmp(way, "become")) {
    if (!setjmp(back)) {
      every(50000, jump, 0);
      poll(NULL, 0, 5000);
      return 1;
    }
    if (!strcmp(way, "become")) return execv(command[0], command);
    work_after();
  } else if (!strcmp(way, "cancel")) {
    pthread_t thread;
    // libc sets its handler at the first time.
    for (int i = 0; i < 2; i++) {
      if (pthread_create(&thread, NULL, sleeper, NULL)) return 1;
      usleep(50000);
      pthread_cancel(thread);
      pthread_join(thread, NULL);
    }
  } else if (!strcmp(way, "start")) {
    every(50000, start, 0);
    while (!done) pause();
  } else {
    every(100000, work, 1);
    while (turns < 15) {
      if (!strcmp(way, "pause")) pause();
      else if (!strcmp(way, "sigsuspend")) sigsuspend(&none);
      else if (!strcmp(way, "poll")) poll(NULL, 0, -1);
      else if (!strcmp(way, "ppoll")) ppoll(NULL, 0, NULL, &none);
      else sleep(100);
    }
  }
  return count > 9;
}
