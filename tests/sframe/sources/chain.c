// What compilers make every day: a leaf, a frame with a frame pointer and alloca, recursion, a deep
// frame, shrink-wrapped saves, a tail call, and calls through the procedure linkage table. Linked
// as a shared library without the C library.
void *outside(void *, int);
int elsewhere(int);

__attribute__((noinline)) int leaf(int x) { return x * 3 + 1; }

__attribute__((noinline)) int through_plt(int x) { return elsewhere(x) + leaf(x); }

__attribute__((noinline)) int grows(int n) {
  char *p = __builtin_alloca(n + 16);
  outside(p, n);
  return p[0] + (n > 0 ? grows(n - 1) : leaf(n));
}

__attribute__((noinline)) int deep(int n) {
  char block[5000];
  outside(block, n);
  return block[n & 4095];
}

__attribute__((noinline)) int many(int a, int b, int c, int d, int e, int f, int g, int h) {
  if (a == 0) return 0;
  int r = through_plt(a) + through_plt(b) * c;
  r += through_plt(d) + e * through_plt(f) + g * through_plt(h);
  return r + a + b + c + d + e + f;
}

__attribute__((noinline)) int tail(int x) { return grows(x + 1); }

// Realigned on the stack: the CFA goes through a register that is neither the stack nor the frame
// pointer.
__attribute__((noinline)) int aligned(int n) {
  _Alignas(64) char block[128];
  char *p = __builtin_alloca(n);
  outside(block, n);
  outside(p, n);
  return block[0] + p[0];
}

// Called and taken the address of: its linkage table entry is the short one, in .plt.got.
int both(int);
void *address(void) { return both; }
__attribute__((noinline)) int calls_both(int x) { return both(x) + 1; }
