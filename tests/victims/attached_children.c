/* A process that is recorded while it runs starts a child: `attached_children KIND`. It says that
 * it is ready, and waits for a line of input. Whoever has worked prints its number and what its own
 * clock shows then, ns. The child lives until the input ends.
 *   vfork: the child works in its parent's memory, then as another program, while another thread of
 *     the parent works.
 *   filtered: it may make no system calls but those it needs.
 *   waiting: it sleeps first, in a call that a stop ends early; then prints how long that took, ms. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define NEVER __attribute__((noinline))
enum { SLEEP_MS = 3000 };

static volatile unsigned long sink;
static volatile int is_over;

static long clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void work(long ms) {
  while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < ms * 1000000) for (int i = 0; i < 20000; i++) sink++;
}

/* Nothing of this is in memory that a child of vfork could leave in disorder. */
static void say(pid_t number, long value) {
  char line[64];
  int length = snprintf(line, sizeof line, "%d %ld\n", number, value);
  if (write(1, line, length) != length) _exit(9);
}

static void say_own(void) { say(getpid(), clock_ns(CLOCK_THREAD_CPUTIME_ID)); }

NEVER static void beside_child(void) { while (!is_over) for (int i = 0; i < 20000; i++) sink++; }
NEVER static void in_parents_memory(void) { work(300); sink++; }
NEVER static void in_own_program(void) { work(600); sink++; }
NEVER static void in_child(void) { work(400); sink++; }

static void *thread(void *unused) {
  beside_child();
  say(gettid(), clock_ns(CLOCK_THREAD_CPUTIME_ID));
  return unused;
}

static void filter(void) {
  struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 5, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 4, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(8);
}

int main(int count, char **arguments) {
  const char *kind = count > 1 ? arguments[1] : "";
  char byte;
  if (!strcmp(kind, "program")) { in_own_program(); say_own(); return 0; }
  pthread_t other;
  int is_vfork = !strcmp(kind, "vfork"), set = epoll_create1(0);
  if (is_vfork) pthread_create(&other, NULL, thread, NULL);
  if (write(1, "ready\n", 6) != 6 || read(0, &byte, 1) != 1) return 2;
  pid_t child = is_vfork ? vfork() : fork();
  if (child == 0 && is_vfork) {
    in_parents_memory();
    execl("/proc/self/exe", "attached_children", "program", NULL);
    _exit(7);
  }
  if (child == 0) {
    if (!strcmp(kind, "filtered")) filter();
    long began = clock_ns(CLOCK_MONOTONIC);
    struct epoll_event event;
    if (!strcmp(kind, "waiting")) {
      int ended = epoll_wait(set, &event, 1, SLEEP_MS);
      say(ended, (clock_ns(CLOCK_MONOTONIC) - began) / 1000000);
    }
    in_child();
    say_own();
    while (read(0, &byte, 1) == 1) {}
    _exit(0);
  }
  int status;
  if (is_vfork) waitpid(child, &status, 0);
  is_over = 1;
  if (is_vfork) pthread_join(other, NULL);
  while (read(0, &byte, 1) == 1) {}
  if (!is_vfork) waitpid(child, &status, 0);
  return status;
}
