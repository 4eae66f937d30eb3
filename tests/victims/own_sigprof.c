// Uses SIGPROF itself, one way per argument, and prints what it saw.
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks, users;
static char order[32];
static sigjmp_buf back;

static void burn(long ms) {
  struct timespec t;
  long start, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  start = now = t.tv_sec * 1000 + t.tv_nsec / 1000000;
  while (now - start < ms) {
    for (volatile int i = 0; i < 20000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    now = t.tv_sec * 1000 + t.tv_nsec / 1000000;
  }
}

static void tick(int signal) { ticks++; (void)signal; }
static void user(int signal) { users++; strcat(order, "U"); (void)signal; }
static void slow(int signal) { raise(SIGUSR1); burn(30); strcat(order, "P"); (void)signal; }
static void jump(int signal) { ticks++; siglongjmp(back, signal); }
static void informed(int signal, siginfo_t *info, void *context) {
  printf("signal %d code %d value %d context %d from us %d\n", signal, info->si_code, info->si_code == SI_TKILL ? 0 : info->si_value.sival_int, context != NULL, info->si_pid == getpid() && info->si_uid == getuid());
}
static void nested(int signal) { if (++ticks < 5) raise(signal); }
static void again(int signal) { ticks++; sigset_t now; sigprocmask(SIG_BLOCK, NULL, &now); users += sigismember(&now, SIGPROF); (void)signal; }

static void inside(int signal) {
  sigset_t waiting;
  if (++ticks > 1) return;
  raise(signal);
  sigpending(&waiting);
  users = ticks * 10 + sigismember(&waiting, signal);
}

static void set(int signal, void (*handler)(int), int flags, int masked) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  sigemptyset(&action.sa_mask);
  if (masked) sigaddset(&action.sa_mask, masked);
  sigaction(signal, &action, NULL);
}

static void show(const char *when) {
  struct sigaction now;
  sigaction(SIGPROF, NULL, &now);
  const char *what = now.sa_handler == SIG_DFL ? "default" : now.sa_handler == SIG_IGN ? "ignored" : now.sa_handler == tick ? "tick" : "other";
  printf("%s: %s flags %x usr1 %d usr2 %d\n", when, what, now.sa_flags & ~0x04000000, sigismember(&now.sa_mask, SIGUSR1), sigismember(&now.sa_mask, SIGUSR2));
}

static void start_timer(long us) {
  struct itimerval every = {{0, us}, {0, us}};
  setitimer(ITIMER_PROF, &every, NULL);
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  sigset_t set_of, old;
  sigemptyset(&set_of);
  sigaddset(&set_of, SIGPROF);
  if (!strcmp(how, "timer")) {
    set(SIGPROF, tick, SA_RESTART, 0);
    start_timer(10000);
    burn(1000);
    start_timer(0);
    printf("%d\n", ticks);
    signal(SIGPROF, SIG_DFL);
    burn(100);
  } else if (!strcmp(how, "readback")) {
    show("at first");
    signal(SIGPROF, tick); show("signal");
    set(SIGPROF, tick, SA_RESTART | SA_ONSTACK, SIGUSR2); show("sigaction");
    printf("before: %d\n", signal(SIGPROF, SIG_IGN) == tick); show("ignored");
    burn(50);
    printf("before: %d\n", signal(SIGPROF, SIG_DFL) == SIG_IGN); show("default");
    burn(50);
    struct sigaction next = {.sa_handler = tick}, before;
    sigaction(SIGPROF, &next, &before);
    printf("%d\n", before.sa_handler == SIG_DFL);
    sigset(SIGPROF, SIG_HOLD); sigprocmask(SIG_BLOCK, NULL, &old); printf("held %d\n", sigismember(&old, SIGPROF));
    sigrelse(SIGPROF); sigprocmask(SIG_BLOCK, NULL, &old); printf("held %d\n", sigismember(&old, SIGPROF));
  } else if (!strcmp(how, "reset")) {
    set(SIGPROF, tick, SA_RESETHAND, 0);
    burn(50);
    raise(SIGPROF);
    printf("%d\n", ticks); show("after one");
    fflush(stdout);
    burn(50);
    raise(SIGPROF);
    puts("not reached");
  } else if (!strcmp(how, "mask")) {
    set(SIGPROF, slow, 0, SIGUSR1);
    set(SIGUSR1, user, 0, 0);
    raise(SIGPROF);
    puts(order);
    order[0] = 0;
    set(SIGPROF, slow, 0, 0);
    raise(SIGPROF);
    puts(order);
  } else if (!strcmp(how, "jump")) {
    set(SIGPROF, jump, 0, 0);
    start_timer(5000);
    while (ticks < 60) if (sigsetjmp(back, 1) == 0) burn(1000);
    start_timer(0);
    set(SIGPROF, SIG_IGN, 0, 0);
    sigprocmask(SIG_BLOCK, NULL, &old);
    printf("%d blocked %d\n", ticks, sigismember(&old, SIGPROF));
    burn(100);
  } else if (!strcmp(how, "killed")) {
    burn(50);
    raise(SIGPROF);
    puts("not reached");
  } else if (!strcmp(how, "information")) {
    struct sigaction action = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO};
    sigaction(SIGPROF, &action, NULL);
    burn(20);
    kill(getpid(), SIGPROF);
    union sigval value = {.sival_int = 42};
    sigqueue(getpid(), SIGPROF, value);
    raise(SIGPROF);
    sigprocmask(SIG_BLOCK, &set_of, NULL);
    value.sival_int = 44;
    sigqueue(getpid(), SIGPROF, value); // the first one counts
    value.sival_int = 45;
    sigqueue(getpid(), SIGPROF, value);
    sigprocmask(SIG_UNBLOCK, &set_of, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF, .sigev_value.sival_int = 43};
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec once = {.it_value.tv_nsec = 1000000};
    timer_settime(timer, 0, &once, NULL);
    burn(50);
  } else if (!strcmp(how, "nested")) {
    set(SIGPROF, nested, SA_NODEFER, 0);
    raise(SIGPROF);
    printf("%d\n", ticks);
  } else if (!strcmp(how, "blocked")) {
    set(SIGPROF, again, 0, 0);
    sigprocmask(SIG_BLOCK, &set_of, NULL);
    raise(SIGPROF);
    burn(50);
    sigset_t waiting;
    sigpending(&waiting);
    printf("%d pending %d\n", ticks, sigismember(&waiting, SIGPROF));
    sigprocmask(SIG_UNBLOCK, &set_of, &old);
    sigpending(&waiting);
    printf("%d pending %d blocked in handler %d, before %d\n", ticks, sigismember(&waiting, SIGPROF), users, sigismember(&old, SIGPROF));
  } else if (!strcmp(how, "raises")) {
    // As often as it asks, however it asks for itself.
    set(SIGPROF, tick, 0, 0);
    for (int i = 0; i < 30000; i++) raise(SIGPROF);
    printf("%d\n", ticks);
    ticks = 0;
    for (int i = 0; i < 10000; i++) {
      sigprocmask(SIG_BLOCK, &set_of, NULL);
      raise(SIGPROF);
      sigprocmask(SIG_UNBLOCK, &set_of, NULL);
    }
    printf("%d\n", ticks);
    // In its own handler it waits.
    set(SIGPROF, inside, 0, 0);
    ticks = 0;
    raise(SIGPROF);
    printf("%d, %d\n", ticks, users);
  } else if (!strcmp(how, "waited")) {
    int got = 0;
    sigaddset(&set_of, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set_of, NULL);
    burn(20);
    raise(SIGUSR1); sigwait(&set_of, &got); printf("%d\n", got);
    burn(20);
    raise(SIGPROF); sigwait(&set_of, &got); printf("%d\n", got);
    sigset_t waiting;
    start_timer(10000);
    do { burn(5); sigpending(&waiting); } while (!sigismember(&waiting, SIGPROF));
    start_timer(0);
    siginfo_t info;
    printf("%d\n", sigwaitinfo(&set_of, &info));
    struct timespec soon = {0, 20000000};
    printf("%d\n", sigtimedwait(&set_of, &info, &soon));
  } else if (!strcmp(how, "alternate")) {
    static char stack[65536];
    stack_t on = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&on, NULL);
    set(SIGPROF, nested, SA_ONSTACK | SA_NODEFER, 0);
    raise(SIGPROF);
    burn(100);
    printf("%d\n", ticks);
  } else return 2;
  return 0;
}
