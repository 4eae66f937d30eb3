// What it takes to read the levels of a Python stack and to do nothing with them: as many objects,
// made in the same order, found by one another, each two pages of them probed once a walk. In a
// handler, of a signal that comes as often as that of a sample while the program does the same.
// level_reads SHALLOW DEEP FRAME CODE TEXTS: bytes of a frame and of a code object; whether its
// name and its lines are read. Prints ns a level: the difference of walks of both depths.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct object {
  struct object *to[2];
};
static struct object *innermost;
static int depths[2], reads_texts;
static volatile uintptr_t sum;
static volatile uint64_t took_ns[2], walks[2];

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// The call that a walk makes, for the word that reaches into both pages.
static inline struct object *look(struct object *object, uintptr_t *known) {
  uintptr_t pair = (uintptr_t)object / 8192;
  if (pair != *known) syscall(SYS_rt_sigprocmask, -1, pair * 8192 + 4092, NULL, 8);
  *known = pair;
  return object;
}

static void walk(int signal) {
  static unsigned turn;
  int which = turn++ % 2;
  uintptr_t frames = 0, others = 0, read = 0;
  uint64_t began_ns = now_ns(CLOCK_MONOTONIC);
  struct object *frame = innermost;
  for (int level = 0; level < depths[which]; level++, frame = frame->to[0]) {
    struct object *code = look(look(frame, &frames)->to[1], &others);
    read += (uintptr_t)code->to[1];
    for (int text = 0; text < 2 && reads_texts; text++)
      read += (uintptr_t)look(code->to[text], &others)->to[0];
  }
  sum = read;
  took_ns[which] += now_ns(CLOCK_MONOTONIC) - began_ns;
  walks[which]++;
}

int main(int count, char **arguments) {
  depths[0] = atoi(arguments[1]), depths[1] = atoi(arguments[2]);
  size_t frame = atoi(arguments[3]), code = atoi(arguments[4]);
  reads_texts = atoi(arguments[5]);
  struct object **codes = calloc(depths[1], sizeof *codes);
  for (int level = 0; level < depths[1]; level++) {
    struct object *made = codes[level] = calloc(1, code);
    made->to[0] = calloc(1, 52);
    made->to[1] = calloc(1, 40);
  }
  for (int level = 0; level < depths[1]; level++) {
    struct object *caller = innermost;
    innermost = calloc(1, frame);
    innermost->to[0] = caller, innermost->to[1] = codes[level];
  }
  signal(SIGALRM, walk);
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, NULL, &timer);
  struct itimerspec often = {{0, 1000000000 / 499}, {0, 1}};
  timer_settime(timer, 0, &often, NULL);
  uint64_t end_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) + 500000000;
  while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns) continue;
  signal(SIGALRM, SIG_IGN);
  double each[2];
  for (int which = 0; which < 2; which++) each[which] = (double)took_ns[which] / walks[which];
  printf("%.1f\n", (each[1] - each[0]) / (depths[1] - depths[0]));
  return 0;
}
