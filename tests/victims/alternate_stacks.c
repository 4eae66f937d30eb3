// Stacks for signals: what a program has set, sees and stands on, while it burns so that samples
// come. `alternate_stacks WAY`, each with the same output whoever looks on:
//   full LEFT     threads that compute with so many bytes left of 16 KB
//   tiles LEFT    the same with AMX's tile registers in use, where the processor has them
//   shown         what sigaltstack says, whatever is set
//   frames        what handlers find in their frames, and where they run
//   left          handlers that are left by siglongjmp
//   forks         what children have
//   set           a stack that a handler sets, of a process that has taken none away, and of a
//   thread within        handlers that fork where they stand, with an action like those of Go's
//   overflow      a handler for which there is no stack left, and no other
//   many          threads that come and go while they get signals
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <immintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

static volatile unsigned long sink;

static void burn_ms(long ms) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  long until = now.tv_sec * 1000 + now.tv_nsec / 1000000 + ms;
  do {
    for (int i = 0; i < 20000; i++) sink += i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < until);
}

// Reads the clock by itself: no function of libc is called where there is no room for one.
static __attribute__((noinline)) void burn_without_stack(void) {
  for (long i = 0; i < 40000000; i++) sink += i;
}

__attribute__((target("amx-tile"))) static __attribute__((noinline)) void burn_with_tiles(void) {
  static const struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } shape = {
      .palette = 1, .bytes = {64, 64, 64}, .rows = {16, 16, 16}};
  _tile_loadconfig(&shape);
  for (long i = 0; i < 200; i++) {
    _tile_zero(1);
    for (int k = 0; k < 100000; k++) sink += k;
  }
  _tile_release();
}

static int left, tiles;

static void *fill(void *argument) {
  pthread_attr_t attributes;
  void *low;
  size_t size;
  char here;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &low, &size);
  pthread_attr_destroy(&attributes);
  size_t room = &here - (char *)low - left;
  volatile char *filling = alloca(room);
  filling[0] = filling[room - 1] = 1;
  if (tiles) burn_with_tiles();
  else burn_without_stack();
  return argument;
}

static void full(int bytes) {
  pthread_attr_t attributes;
  pthread_t thread;
  left = bytes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 16384);
  for (int i = 0; i < 4; i++) {
    if (pthread_create(&thread, &attributes, fill, NULL)) { puts("no thread"); return; }
    pthread_join(thread, NULL);
  }
  puts("full");
}

static void say(const char *when) {
  stack_t by_function, by_number;
  burn_ms(5);
  int results = sigaltstack(NULL, &by_function) + syscall(SYS_sigaltstack, NULL, &by_number);
  int same = by_function.ss_sp == by_number.ss_sp && by_function.ss_size == by_number.ss_size && by_function.ss_flags == by_number.ss_flags;
  printf("%s: %d %d %d %x %zu\n", when, results, same, by_function.ss_sp != NULL, by_function.ss_flags, by_function.ss_size);
}

static char own[65536];
static const stack_t of_own = {.ss_sp = own, .ss_size = sizeof own};
static const stack_t none = {.ss_flags = SS_DISABLE};

static void on_it(int signal) {
  say("on it");
  printf("changed: %d", sigaltstack(&none, NULL));
  printf(" %s\n", strerror(errno));
  (void)signal;
}

static void shown(void) {
  stack_t old;
  say("at first");
  printf("set: %d\n", sigaltstack(&of_own, &old));
  printf("before: %d %x %zu\n", old.ss_sp != NULL, old.ss_flags, old.ss_size);
  say("own");
  struct sigaction action = {.sa_handler = on_it, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  say("own again");
  old = none;
  printf("exchanged: %d", sigaltstack(&old, &old));
  printf(" %d %x %zu\n", old.ss_sp == own, old.ss_flags, old.ss_size);
  say("none");
  stack_t wrong = {.ss_sp = own, .ss_size = 100};
  printf("small: %d", sigaltstack(&wrong, NULL));
  printf(" %s\n", strerror(errno));
  wrong.ss_flags = 64;
  printf("flags: %d", sigaltstack(&wrong, &old));
  printf(" %s\n", strerror(errno));
  printf("address: %ld", syscall(SYS_sigaltstack, 16l, NULL));
  printf(" %s\n", strerror(errno));
  printf("address: %ld", syscall(SYS_sigaltstack, NULL, 16l));
  printf(" %s\n", strerror(errno));
  say("still none");
  stack_t away = of_own;
  away.ss_flags = SS_AUTODISARM;
  printf("set: %ld\n", syscall(SYS_sigaltstack, &away, NULL));
  say("own, put away while in use");
  raise(SIGUSR1);
  say("the same");
  // In its handler it took itself away while it was put away anyhow: the end of the handler has
  // brought it back.
  printf("none: %ld\n", syscall(SYS_sigaltstack, &none, &old));
  printf("before: %d %x\n", old.ss_sp == own, old.ss_flags);
  say("none");
}

static const char *kind;
static volatile int looked;

// Which of the stacks an address is on.
static const char *place(const void *address, const ucontext_t *context) {
  uintptr_t distance = (uintptr_t)context->uc_mcontext.gregs[REG_RSP] - (uintptr_t)address;
  if ((const char *)address > own && (const char *)address <= own + sizeof own) return "own";
  return distance < 20000 ? "below" : "elsewhere";
}
static void look(int signal, siginfo_t *info, void *given) {
  ucontext_t *context = given;
  char here;
  const char *state = (const char *)context->uc_mcontext.fpregs;
  printf("%s %d: frame %s, state %s, stack %s, says %d %x %zu, information %d %d, aligned %d %d\n", kind, signal, place(context, context),
         place(state, context), place(&here, context), context->uc_stack.ss_sp != NULL, context->uc_stack.ss_size ? context->uc_stack.ss_flags : 0,
         context->uc_stack.ss_size, info->si_signo == signal, info->si_code, (int)((uintptr_t)state % 64), (int)((uintptr_t)context % 16));
  looked = 1;
  burn_ms(3);
}
static void look_at_all(const char *which) {
  static const int flags[] = {SA_SIGINFO, SA_SIGINFO | SA_ONSTACK};
  static const int signals[] = {SIGUSR1, SIGURG, SIGPROF, SIGALRM};
  kind = which;
  for (int s = 0; s < 4; s++)
    for (int f = 0; f < 2; f++) {
      struct sigaction action = {.sa_sigaction = look, .sa_flags = flags[f]};
      sigaction(signals[s], &action, NULL);
      burn_ms(3);
      // The vector registers must be what they were.
      volatile double product = 1;
      double factor = sink % 2 + 1.5;
      // One of the number that samples are asked by can be lost.
      for (looked = 0; !looked;) raise(signals[s]);
      product *= factor;
      if (product < 1.5) puts("the registers have changed");
      burn_ms(3);
    }
}
static void *frames(void *name) {
  look_at_all(name);
  sigaltstack(&of_own, NULL);
  look_at_all("own");
  sigaltstack(&none, NULL);
  look_at_all("none again");
  return NULL;
}

static sigjmp_buf back;
static void leave(int signal) {
  burn_ms(1);
  siglongjmp(back, signal);
}
static void left_by_jumps(void) {
  struct sigaction action = {.sa_handler = leave, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGSEGV, &action, NULL);
  for (volatile int i = 0; i < 200; i++) {
    if (i == 100) sigaltstack(&of_own, NULL);
    if (sigsetjmp(back, 1)) continue;
    if (i % 2) raise(SIGUSR1);
    else *(volatile int *)(intptr_t)sink = 1, *(volatile int *)NULL = 1;
  }
  say("left");
}

static void *forks(void *name) {
  for (int own_one = 0; own_one < 2; own_one++) {
    if (own_one) sigaltstack(&of_own, NULL);
    fflush(stdout);
    for (int way = 0; way < 3; way++) {
      pid_t child = way == 0 ? fork() : way == 1 ? vfork() : syscall(SYS_fork);
      if (child == 0) {
        if (way != 1) {
          say(name);
          fflush(stdout);
        }
        _exit(0);
      }
      int status;
      waitpid(child, &status, 0);
      printf("%s %d %x\n", (const char *)name, way, status);
    }
    say(name);
  }
  sigaltstack(&none, NULL);
  return NULL;
}

static void set_within(int signal, siginfo_t *info, void *given) {
  const ucontext_t *context = given;
  printf("frame %x, set: %d\n", context->uc_stack.ss_flags, sigaltstack(&of_own, NULL));
  (void)signal, (void)info;
}
static void set(void) {
  struct sigaction action = {.sa_sigaction = set_within, .sa_flags = SA_SIGINFO};
  sigaction(SIGUSR1, &action, NULL);
  burn_ms(5);
  raise(SIGUSR1);
  say("set");
  sigaltstack(&none, NULL);
  raise(SIGUSR1);
  say("set again");
}

static void fork_within(int signal) {
  fflush(stdout);
  pid_t child = fork();
  burn_ms(3);
  int status = 0;
  if (child) waitpid(child, &status, 0);
  printf("%s %x\n", child ? "parent" : "child", status);
  fflush(stdout);
  if (!child && signal == SIGUSR1) _exit(7);
}
static void within(void) {
  struct sigaction action = {.sa_handler = fork_within, .sa_flags = SA_ONSTACK | SA_SIGINFO | SA_RESTART};
  sigfillset(&action.sa_mask);
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGUSR2, &action, NULL);
  burn_ms(3);
  raise(SIGUSR1);
  raise(SIGUSR2);
  burn_ms(3);
  puts("within");
}

static void never(int signal) { _exit(signal); }
static __attribute__((noinline)) long deeper(long depth) {
  volatile char frame[1000];
  frame[0] = depth;
  return deeper(depth + 1) + frame[0];
}
static void overflow(void) {
  struct sigaction action = {.sa_handler = never, .sa_flags = SA_ONSTACK | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  burn_ms(5);
  puts("overflow");
  fflush(stdout);
  sink = deeper(0);
}

static volatile int stop, counted;
static void count(int signal) {
  __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
  (void)signal;
}
static void *brief(void *argument) {
  for (int i = 0; i < 20; i++) {
    burn_ms(1);
    raise(i % 2 ? SIGUSR1 : SIGUSR2);
  }
  return argument;
}
static void many(void) {
  struct sigaction action = {.sa_handler = count, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  action.sa_flags = 0;
  sigaction(SIGUSR2, &action, NULL);
  for (int round = 0; round < 5; round++) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, brief, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  }
  printf("many %d\n", counted);
}

static void *in_thread(void *function) {
  ((void (*)(void))function)();
  return NULL;
}
static void here_and_there(void (*function)(void)) {
  pthread_t thread;
  function();
  fflush(stdout);
  pthread_create(&thread, NULL, in_thread, (void *)function);
  pthread_join(thread, NULL);
}

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "";
  pthread_t thread;
  if (!strcmp(way, "full")) full(atoi(arguments[2]));
  else if (!strcmp(way, "tiles")) {
    // ARCH_REQ_XCOMP_PERM for the tiles' data.
    tiles = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
    fprintf(stderr, "tiles %d\n", tiles);
    full(atoi(arguments[2]));
  } else if (!strcmp(way, "shown")) here_and_there(shown);
  else if (!strcmp(way, "frames")) {
    frames("main");
    pthread_create(&thread, NULL, frames, "thread");
    pthread_join(thread, NULL);
  } else if (!strcmp(way, "left")) here_and_there(left_by_jumps);
  else if (!strcmp(way, "forks")) {
    forks("main");
    pthread_create(&thread, NULL, forks, "thread");
    pthread_join(thread, NULL);
  } else if (!strcmp(way, "set") && count == 2) {
    // What a process has that has taken no stack away, nor the one before it.
    sigaltstack(&of_own, NULL);
    execl("/proc/self/exe", arguments[0], way, "again", NULL);
  } else if (!strcmp(way, "set")) here_and_there(set);
  else if (!strcmp(way, "within")) within();
  else if (!strcmp(way, "overflow")) {
    pthread_create(&thread, NULL, in_thread, (void *)overflow);
    pthread_join(thread, NULL);
  }
  else if (!strcmp(way, "many")) many();
  return 0;
}
