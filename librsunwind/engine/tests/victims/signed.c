// Functions of aarch64 that sign their return addresses, stopped at traps between the instructions
// that matter. Built with SFrame by tests/signed.rs.
#include <stdint.h>

#define NOIPA __attribute__((noinline, noclone, noipa))
#define KEY_B __attribute__((target("branch-protection=pac-ret+b-key")))

// The return addresses of the calls in flight, outermost first, as the compiler strips them; and as
// they lie on the stack.
uint64_t returns[64], stored[64];
int depth;

// Not the compiler's own: a trap at each place where the return address is somewhere else.
void stops(void);
__asm__(".text\n.global stops\n.type stops, %function\nstops:\n"
        ".cfi_startproc\n"
        "  brk #1\n"  // in its register
        "  paciasp\n  .cfi_negate_ra_state\n"
        "  brk #2\n"  // in its register, signed
        "  stp x29, x30, [sp, #-32]!\n"
        "  .cfi_def_cfa_offset 32\n  .cfi_offset 29, -32\n  .cfi_offset 30, -24\n"
        "  brk #3\n"  // on the stack, signed
        "  mov x29, sp\n  .cfi_def_cfa_register 29\n"
        "  mov x30, xzr\n"
        "  brk #4\n"  // there alone
        "  ldp x29, x30, [sp], #32\n"
        "  .cfi_restore 30\n  .cfi_restore 29\n  .cfi_def_cfa 31, 0\n"
        "  brk #5\n"  // in its register again, signed
        "  autiasp\n  .cfi_negate_ra_state\n"
        "  brk #6\n"
        "  ret\n"
        ".cfi_endproc\n.size stops, . - stops\n");

#define ENTER                                                            \
  do {                                                                   \
    returns[depth] = (uint64_t)__builtin_return_address(0);              \
    stored[depth] = ((uint64_t *)__builtin_frame_address(0))[1];         \
    depth++;                                                             \
  } while (0)

NOIPA int even(int n);
NOIPA KEY_B int odd(int n) {
  ENTER;
  int found = even(n - 1) * 3 + 1;
  depth--;
  return found;
}

NOIPA int even(int n) {
  ENTER;
  volatile char block[600];
  block[n] = (char)n;
  if (n == 0)
    stops();
  else
    block[n] += (char)odd(n - 1);
  depth--;
  return block[n];
}

NOIPA int run_signed(void) {
  ENTER;
  int found = even(10);
  depth--;
  return found;
}
