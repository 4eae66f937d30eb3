// A program of which the kernel's own unwinder finds every caller: it has frame pointers
// throughout, a beginning that ends the chain of them, and makes its system calls itself, since
// libc has none. Works in user mode and in the kernel at many depths, in two processes. Usage:
// chains ROUNDS
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__asm__(".globl _start\n.type _start, @function\n_start:\n"
        ".cfi_startproc\n.cfi_undefined rip\n"
        "xor %ebp, %ebp\nmov %rsp, %rdi\nand $-16, %rsp\ncall begin\nhlt\n"
        ".cfi_endproc\n.size _start, . - _start\n");

static char buffer[1 << 20];
static int zeros;

// Inlined: a function of these few instructions would get no frame.
__attribute__((always_inline)) static inline long call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

__attribute__((noinline)) static double spin(long n) {
  volatile double x = 0;
  for (long i = 0; i < n; i++) x += i;
  return x;
}

__attribute__((noinline)) static long load(long n) {
  long sum = 0;
  for (long i = 0; i < n; i++) sum += call(SYS_read, zeros, (long)buffer, sizeof buffer);
  return sum;
}

__attribute__((noinline)) static double deeper(int depth) {
  if (depth == 0) return spin(150000) + load(6);
  return deeper(depth - 1) + 1;
}

__attribute__((noinline)) static double work(int rounds) {
  double sum = 0;
  for (int i = 0; i < rounds; i++) sum += deeper(i % 40);
  return sum;
}

__attribute__((noinline)) void begin(long *stack) {
  int rounds = stack[0] > 1 ? atoi((char *)stack[2]) : 100;
  zeros = call(SYS_open, (long)"/dev/zero", 0, 0);
  int child = fork();
  double sum = work(rounds);
  if (child == 0) _exit(0);
  int status = -1;
  waitpid(child, &status, 0);
  printf("%d rounds: %.0f, child %d\n", rounds, sum, status);
  fflush(stdout);
  exit(0);
}
