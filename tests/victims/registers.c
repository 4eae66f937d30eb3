// Puts known values into every register and the red zone, waits in a loop that touches none of
// them, and looks at them again.
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static uint8_t before[16][32], after[16][32];
static uint64_t general[10], zone[16];
static uint32_t control;
static uint16_t x87;

__attribute__((noinline)) static void hold(long turns, int avx) {
#define EACH(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) what(8) what(9) what(10) what(11) what(12) what(13) what(14) what(15)
#define XIN(n) "movups %c[b]+" #n "*32(%%rip), %%xmm" #n "\n"
#define XOUT(n) "movups %%xmm" #n ", %c[a]+" #n "*32(%%rip)\n"
#define YIN(n) "vmovups %c[b]+" #n "*32(%%rip), %%ymm" #n "\n"
#define YOUT(n) "vmovups %%ymm" #n ", %c[a]+" #n "*32(%%rip)\n"
#define ZIN(n) "movq $" #n "+1000, -8*(" #n "+1)(%%rsp)\n"
#define ZOUT(n) "movq -8*(" #n "+1)(%%rsp), %%rax\n movq %%rax, %c[z]+8*" #n "(%%rip)\n"
#define BODY(IN, OUT) \
  "push %%rbx\n push %%rbp\n" /* a red zone below them */ \
  EACH(IN) EACH(ZIN) \
  "mov $11,%%ebx\n mov $12,%%ebp\n mov $18,%%r8\n mov $19,%%r9\n mov $20,%%r10\n mov $21,%%r11\n mov $22,%%r12\n mov $23,%%r13\n mov $24,%%r14\n mov $25,%%r15\n" \
  "stc\n 1: lea -1(%%rcx),%%rcx\n jrcxz 2f\n jmp 1b\n 2: jnc 3f\n" \
  "mov %%rbx,%c[g](%%rip)\n mov %%rbp,%c[g]+8(%%rip)\n mov %%r8,%c[g]+16(%%rip)\n mov %%r9,%c[g]+24(%%rip)\n mov %%r10,%c[g]+32(%%rip)\n" \
  "mov %%r11,%c[g]+40(%%rip)\n mov %%r12,%c[g]+48(%%rip)\n mov %%r13,%c[g]+56(%%rip)\n mov %%r14,%c[g]+64(%%rip)\n mov %%r15,%c[g]+72(%%rip)\n" \
  "3:\n" EACH(OUT) EACH(ZOUT) "pop %%rbp\n pop %%rbx\n"
#define OPERANDS : "+c"(turns) : [b] "i"(before), [a] "i"(after), [g] "i"(general), [z] "i"(zone) \
  : "rax", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc", \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
  __asm__ volatile("sub $256, %%rsp" ::: "memory", "cc"); // the compiler's own red zone stays above
  if (avx) __asm__ volatile(BODY(YIN, YOUT) OPERANDS);
  else __asm__ volatile(BODY(XIN, XOUT) OPERANDS);
  __asm__ volatile("add $256, %%rsp" ::: "memory", "cc");
}

int main(void) {
  __builtin_cpu_init();
  int avx = __builtin_cpu_supports("avx") != 0, width = avx ? 32 : 16;
  for (int i = 0; i < 16; i++) for (int j = 0; j < 32; j++) before[i][j] = (uint8_t)(i * 37 + j * 11 + 1);
  uint32_t mxcsr = 0x1f80 | 0x6000; // rounding towards zero
  uint16_t word = 0x0f7f;
  __asm__ volatile("ldmxcsr %0\n fldcw %1" ::"m"(mxcsr), "m"(word));
  long wrong = 0, rounds = 0;
  struct timespec t;
  errno = 77;
  do {
    memset(after, 0, sizeof after);
    memset(general, 0, sizeof general);
    hold(200000, avx);
    for (int i = 0; i < 16; i++) wrong += memcmp(before[i], after[i], width) != 0;
    for (int i = 0; i < 10; i++) wrong += general[i] != (uint64_t)(i < 2 ? 11 + i : 16 + i);
    for (int i = 0; i < 16; i++) wrong += zone[i] != (uint64_t)(1000 + i);
    wrong += errno != 77;
    __asm__ volatile("stmxcsr %0\n fnstcw %1" : "=m"(control), "=m"(x87));
    wrong += (control & ~0x3fu) != (mxcsr & ~0x3fu) || x87 != word;
    rounds++;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  } while (t.tv_sec < 1);
  printf("%s\n", wrong ? "wrong" : rounds > 10 ? "right" : "few");
  return 0;
}
