// Functions of every shape that compilers make, run one instruction at a time by
// tests/single_step.rs.
#define _GNU_SOURCE
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
#define NOIPA __attribute__((noinline, noclone, noipa))

static volatile uint64_t sink;

// The flag is set with rsp out of step, so the CFA must not hang on it.
__attribute__((noinline, optimize("O0", "no-omit-frame-pointer"))) static void trap_on(void) {
  __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
}
__attribute__((noinline, optimize("O0", "no-omit-frame-pointer"))) static void trap_off(void) {
  __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

NOIPA uint64_t leaf(uint64_t x) { return x * 3 + 1; }

NOIPA uint64_t six_registers(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
  uint64_t s = 0;
  for (int i = 0; i < 3; i++) {
    s += leaf(a) ^ leaf(b) ^ leaf(c) ^ leaf(d) ^ leaf(e) ^ leaf(f);
    a += s; b ^= a; c += b; d ^= c; e += d; f ^= e;
  }
  return s + a + b + c + d + e + f;
}

NOIPA uint64_t large_frame(uint64_t x) {
  volatile char buffer[9000];
  buffer[0] = (char)x;
  buffer[8999] = (char)(x >> 8);
  return leaf(buffer[0]) + buffer[8999];
}

NOIPA uint64_t dynamic_frame(uint64_t n) {
  char *p = alloca(n * 16 + 1);
  memset(p, (int)n, n * 16);
  uint64_t s = 0;
  for (uint64_t i = 0; i < n; i++) s += leaf((uint64_t)p[i]);
  return s;
}

NOIPA uint64_t realigned_frame(uint64_t n, uint64_t a, uint64_t b) {
  _Alignas(64) volatile uint64_t v[8];
  char *p = alloca(n * 8 + 1);
  p[0] = (char)a;
  for (int i = 0; i < 8; i++) v[i] = leaf(a + (uint64_t)i) ^ b;
  return v[0] + v[7] + (uint64_t)p[0] + ((uintptr_t)v & 63);
}

NOIPA uint64_t many_arguments(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
                              uint64_t h, uint64_t i) {
  return leaf(a + g) + leaf(b + h) + leaf(c + i) + d + e + f;
}

NOIPA uint64_t early_return(uint64_t x, uint64_t *p) {
  if (!p) return x;  // shrink-wrapped: the registers are saved behind this
  uint64_t s = 0;
  for (int i = 0; i < 2; i++) s += leaf(*p + s) * leaf(x);
  *p = s;
  return s;
}

NOIPA uint64_t tail(uint64_t x) { return leaf(x + 7); }

NOIPA uint64_t recursive(uint64_t n) { return n == 0 ? leaf(1) : recursive(n - 1) + leaf(n); }

static jmp_buf jump;
__attribute__((noreturn)) NOINLINE static void never_returns(uint64_t x) {
  sink += x;
  longjmp(jump, 1);
}
// Ends in a call, so that the return address belongs to the function behind.
NOIPA void ends_in_a_call(uint64_t x) {
  if (x & 1) sink++;
  never_returns(x + leaf(x));
}
NOIPA void behind_the_call(void) { sink += 3; }

NOIPA uint64_t jumps(void) {
  if (setjmp(jump) == 0) ends_in_a_call(5);
  behind_the_call();
  return sink;
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (int)(leaf(x) > leaf(y)) - (int)(x < y);
}

NOIPA uint64_t callbacks(void) {
  uint64_t values[] = {5, 3, 9, 1, 7};
  qsort(values, 5, sizeof values[0], compare);
  return values[0];
}

NOIPA uint64_t library(void) {
  char text[128], copy[128];
  int n = snprintf(text, sizeof text, "%d %s %.3f", 42, "words", 2.5);
  memcpy(copy, text, (size_t)n + 1);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return strlen(copy) + (uint64_t)(now.tv_nsec & 0) + (uint64_t)(strchr(copy, 'w') - copy);
}

void *signal_context;
// Code that no table describes, as a JIT makes it: push %rbp; mov %rsp,%rbp; sub $16,%rsp; call
// *%rdi; leave; ret
static uint64_t (*jitted)(uint64_t (*)(void));
NOIPA uint64_t inner_callback(void) { return leaf(sink); }
NOIPA uint64_t outer_callback(void) { return jitted(inner_callback) + leaf(3); }
NOIPA uint64_t transitions(void) {
  static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xff, 0xd7, 0xc9, 0xc3};
  void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  jitted = (uint64_t(*)(uint64_t(*)(void)))page;
  return jitted(outer_callback);
}

static void on_signal(int number, siginfo_t *info, void *context) {
  signal_context = context;
  trap_on();
  sink += leaf((uint64_t)number);
  trap_off();
}

NOIPA uint64_t interrupted(void) {
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
  sigaction(SIGUSR2, &action, 0);
  raise(SIGUSR2);
  return leaf(sink);
}

NOIPA uint64_t everything(void) {
  uint64_t s = six_registers(1, 2, 3, 4, 5, 6), local = 11;
  s += large_frame(7) + dynamic_frame(5) + realigned_frame(3, 4, 5);
  s += many_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9);
  s += early_return(3, 0) + early_return(3, &local) + tail(9) + recursive(6);
  s += jumps() + callbacks() + library() + transitions() + interrupted();
  return s;
}

uint64_t run_stepped(void) {
  trap_on();
  uint64_t s = everything();
  trap_off();
  return s;
}
