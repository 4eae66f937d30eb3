// Stacks that change in every way, from a random program: calls, tail calls, other registers in
// the same frames, alloca, longjmp, exceptions, coroutines, an alternate stack. Prints "right", or
// "wrong" if a way back was not taken, after 0.6 s of CPU time.
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <ucontext.h>

static unsigned long seed = 88172645463325252ul;
static unsigned long below(unsigned long limit) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (seed >> 11) % limit;
}
static double cpu() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}
static void work() { for (volatile unsigned long i = below(3000); i > 0; i = i - 1) {} }

static long throws, jumps, switches, signals, wrong;
static jmp_buf *landing;
static ucontext_t outside, inside;
struct Thrown {};
using Step = long (*)(long depth, long a, long b);
extern const Step steps[];
static long go(long depth, long a, long b) {
  work();
  return depth <= 0 ? a : steps[below(8)](depth - 1, a, b);
}
// The same return address at the same place, with another register's value below it.
__attribute__((noinline)) static long keeps(long depth, long a, long b) {
  long c = below(3), d = a * 3 + c, e = b ^ d;
  long found = go(depth, d, e);
  work();
  return found + c + d + e + go(depth / 2, e, c);
}
__attribute__((noinline)) static long takes(long depth, long a, long b) {
  volatile char *room = static_cast<char *>(alloca(16 + 16 * below(4)));
  room[0] = 1;
  return go(depth, a, b) + room[0];
}
__attribute__((noinline)) static long leaps(long depth, long a, long b) { return go(depth, b, a); }
__attribute__((noinline)) static long falls(long depth) {
  work();
  if (depth <= 0) longjmp(*landing, 1);
  return falls(depth - 1) + 1;
}
__attribute__((noinline)) static long jumped(long depth, long a, long b) {
  jmp_buf here, *before = landing;
  volatile long kept = a;
  landing = &here;
  if (!setjmp(here)) {
    go(depth, a, b);
    jumps++;
    falls(below(10));
  }
  landing = before;
  wrong += kept != a;
  return kept;
}
__attribute__((noinline)) static long thrown(long depth, long a, long b) {
  jmp_buf *before = landing;
  try {
    go(depth, a, b);
    throws++;
    throw Thrown();
  } catch (const Thrown &) {
    wrong += landing != before;
    work();
  }
  return a;
}
static void coroutine() {
  for (;;) {
    go(6, 1, 2);
    switches++;
    swapcontext(&inside, &outside);
  }
}
static bool is_inside, is_handling;
__attribute__((noinline)) static long switched(long depth, long a, long b) {
  if (is_inside || is_handling) return go(depth, a, b);
  is_inside = true;
  swapcontext(&outside, &inside);
  is_inside = false;
  return go(depth, a, b);
}
static void handle(int) {
  is_handling = true;
  signals++;
  go(5, 3, 4);
  is_handling = false;
}
__attribute__((noinline)) static long signalled(long depth, long a, long b) {
  if (!is_handling) raise(SIGUSR1);
  return go(depth, a, b);
}
const Step steps[] = {keeps, takes, leaps, jumped, thrown, switched, signalled, keeps};

int main() {
  static char rooms[2][1 << 18];
  stack_t alternate = {};
  alternate.ss_sp = rooms[0];
  alternate.ss_size = sizeof rooms[0];
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  getcontext(&inside);
  inside.uc_stack.ss_sp = rooms[1];
  inside.uc_stack.ss_size = sizeof rooms[1];
  makecontext(&inside, coroutine, 0);
  while (cpu() < 0.6) go(below(20), below(5), below(7));
  bool all = throws > 10 && jumps > 10 && switches > 10 && signals > 10;
  std::puts(wrong ? "wrong" : all ? "right" : "few");
  return 0;
}
