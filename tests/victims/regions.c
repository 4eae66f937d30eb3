// Labels of regions, each with work in a function of its own, whose name says in which it is.
#define RSUNWIND_OPTIONAL
#include "rsunwind.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void spin(long ms) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  long until = t.tv_sec * 1000000 + t.tv_nsec / 1000 + ms * 1000;
  do {
    for (volatile int i = 0; i < 2000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  } while (t.tv_sec * 1000000 + t.tv_nsec / 1000 < until);
}

#define WORK(name)                                    \
  __attribute__((noinline, noclone)) static void name(long ms) { \
    spin(ms);                                         \
    __asm__ volatile("# " #name); /* no two are one */ \
  }
WORK(in_none)
WORK(in_a)
WORK(in_b)
WORK(in_b_again)
WORK(in_handler)
WORK(in_child)
WORK(in_child_behind)
WORK(in_none_again)
WORK(in_thread)
WORK(in_next_thread)
WORK(in_many)
WORK(in_span)
WORK(in_span_region)
WORK(behind_span)

// OpenTelemetry's thread context.
struct context {
  unsigned char trace[16], span[8], valid, unused;
  unsigned short attributes;
};
__attribute__((visibility("default"))) __thread struct context *otel_thread_ctx_v1;

static int is_recorded;

static void check(int is_right, const char *what) {
  if (!is_right) printf("wrong: %s\n", what);
}

static int64_t begin(const char *key, const char *value) {
  struct rsunwind_label label = RSUNWIND_LABEL(key, value);
  int64_t region = rsunwind_region_begin ? rsunwind_region_begin(&label, 1) : 0;
  check(is_recorded ? region > 0 : region == 0, "begin");
  return region;
}

static int end(int64_t region) { return rsunwind_region_end ? rsunwind_region_end(region) : 0; }

static void handle(int number) {
  (void)number;
  int64_t region = begin("signal", "USR1");
  in_handler(30);
  begin("left", "open");
  check(end(region) == 0, "end in a handler");
}

static void *leave_open(void *unused) {
  begin("job", "1");
  in_thread(40);
  return unused;
}

static void *next(void *unused) {
  in_next_thread(40);
  return unused;
}

static void run(void *(*body)(void *)) {
  pthread_t thread;
  pthread_create(&thread, NULL, body, NULL);
  pthread_join(thread, NULL);
}

// As many labels as there is room for, and then more.
static void many(void) {
  if (!is_recorded) return;
  static char value[1000];
  memset(value, 'v', sizeof value - 1);
  struct rsunwind_label labels[RSUNWIND_LABELS + 1];
  for (int i = 0; i <= RSUNWIND_LABELS; i++) labels[i] = (struct rsunwind_label)RSUNWIND_LABEL("key", value);
  check(rsunwind_region_begin(labels, RSUNWIND_LABELS + 1) == RSUNWIND_E_NULL, "too many labels");
  check(rsunwind_region_begin(NULL, 0) == RSUNWIND_E_NULL, "no labels");
  check(rsunwind_region_begin(labels, RSUNWIND_LABELS) == RSUNWIND_E_BUDGET, "too large");
  int64_t outer = rsunwind_region_begin(labels, 1);
  check(outer > 0, "a long value");
  in_many(20);
  int count = 0;
  while (rsunwind_region_begin(labels, 1) > 0) count++;
  check(count == 13, "regions there is room for");
  check(end(outer) == 0, "end of all");
}

int main(void) {
  is_recorded = getenv("RECORDED") != NULL;
  signal(SIGUSR1, handle);
  in_none(40);
  struct rsunwind_label labels[] = {RSUNWIND_LABEL("route", "/a"), RSUNWIND_LABEL("user", "\033[31mx"),
                                    RSUNWIND_LABEL("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
                                    RSUNWIND_LABEL("span_id", "00f067aa0ba902b7")};
  int64_t outer = rsunwind_region_begin ? rsunwind_region_begin(labels, 4) : 0;
  in_a(40);
  int64_t inner = begin("route", "/b");
  in_b(40);
  raise(SIGUSR1);
  in_b_again(30);
  check(end(inner) == 0, "end");
  check(end(inner) == (is_recorded ? RSUNWIND_E_NO_CLIENT : 0), "end a second time");
  fflush(stdout);
  if (fork() == 0) {
    in_child(40);
    check(end(outer) == 0, "end in a child");
    in_child_behind(40);
    exit(0);
  }
  wait(NULL);
  begin("left", "open");
  check(end(outer) == 0, "end of the outer one");
  in_none_again(40);
  run(leave_open);
  run(next);
  many();
  struct context context = {.trace = {0x4b, 0xf9}, .span = {0, 0xf0}, .valid = 1};
  otel_thread_ctx_v1 = &context;
  in_span(30);
  int64_t region = begin("span_id", "mine");
  in_span_region(30);
  end(region);
  context.valid = 0;
  behind_span(30);
  otel_thread_ctx_v1 = (void *)64;
  behind_span(30);
  puts("done");
  return 0;
}
