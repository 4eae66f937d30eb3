// System calls that no library can stand in front of: `bare(NUMBER, …)` is libc's `syscall`,
// written out here.
#include <errno.h>
#include <stdarg.h>
__attribute__((unused)) static long bare(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
  register long d __asm__("r10") = va_arg(rest, long);
  register long e __asm__("r8") = va_arg(rest, long);
  register long f __asm__("r9") = va_arg(rest, long);
  va_end(rest);
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(d), "r"(e), "r"(f) : "rcx", "r11", "memory");
  if (result >= -4095 && result < 0) {
    errno = (int)-result;
    return -1;
  }
  return result;
}
