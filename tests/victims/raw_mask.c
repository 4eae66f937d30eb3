// Blocks SIGPROF by a system call, made by libc's syscall() or behind everybody's back, works for a
// while in user and in kernel mode, and then goes one of several ways. Usage: raw_mask (libc|bare)
// (unblock|exit|stay|sleep|fill|long) MILLISECONDS. Prints when it was blocked, from and to
// (CLOCK_MONOTONIC), and the CPU time used, ns.
#define _GNU_SOURCE
#include "bare.h"
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char block[32 << 10];
static int zero;
static volatile uint64_t sum;
static double from, to;

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static void mask(int libc, int how) {
  uint64_t set = 1ull << (SIGPROF - 1);
  if (libc) syscall(SYS_rt_sigprocmask, how, &set, NULL, 8);
  else bare(SYS_rt_sigprocmask, how, &set, NULL, 8);
}

__attribute__((noinline)) static void compute(void) {
  for (int i = 0; i < 100000; i++) sum += (uint64_t)i * 3;
}

// As deep as the program's work goes while the signal is blocked.
__attribute__((noinline)) static void transfer(void) {
  for (int i = 0; i < 40; i++) if (read(zero, block, sizeof block) <= 0) exit(1);
}

__attribute__((noinline)) static void work(double seconds) {
  double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;
  while (now(CLOCK_THREAD_CPUTIME_ID) < end) compute(), transfer();
}

static char *fresh(size_t size) {
  char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) exit(1);
  return memory;
}

// A call that works for a while, and then sleeps for good: nobody reads.
__attribute__((noinline)) static void fill(void) {
  int ends[2], room = 64 << 20;
  size_t size = (size_t)256 << 20;
  char *memory = fresh(size);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) exit(1);
  if (setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) exit(1);
  if (write(ends[0], memory, size) != 0) exit(1);
}

// Always in one of many calls of a fraction of a second.
__attribute__((noinline)) static void transfer_much(void) {
  size_t size = (size_t)256 << 20;
  char *memory = fresh(size);
  for (;;) if (read(zero, memory, size) <= 0) exit(1);
}

static void tell(void) {
  if (to == 0) to = now(CLOCK_MONOTONIC);
  char line[80];
  int length = snprintf(line, sizeof line, "%.0f %.0f %.0f\n", from * 1e9, to * 1e9, now(CLOCK_THREAD_CPUTIME_ID) * 1e9);
  if (write(1, line, length) != length) _exit(1);
}

// Ends as it would without this, by the signal, as soon as this returns.
static void told_to_end(int number) {
  tell();
  signal(number, SIG_DFL);
  raise(number);
}

int main(int count, char **arguments) {
  if (count < 4) return 2;
  int libc = !strcmp(arguments[1], "libc");
  const char *way = arguments[2];
  double seconds = atof(arguments[3]) * 1e-3;
  zero = open("/dev/zero", O_RDONLY);
  signal(SIGTERM, told_to_end);
  work(0.2);
  mask(libc, SIG_BLOCK);
  from = now(CLOCK_MONOTONIC);
  work(seconds);
  if (!strcmp(way, "exit")) return tell(), 0;
  if (!strcmp(way, "stay")) work(1e6);
  if (!strcmp(way, "fill")) fill();
  if (!strcmp(way, "long")) transfer_much();
  if (!strcmp(way, "sleep")) for (;;) pause();
  to = now(CLOCK_MONOTONIC);
  mask(libc, SIG_UNBLOCK);
  work(0.2);
  return tell(), 0;
}
