// What of libc's own state a program finds at its start.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>

int main(void) {
  int error = errno;
  size_t taken = mallinfo2().uordblks;
  const char *left = dlerror();
  printf("errno %d, %zu bytes of the heap, dlerror %s\n", error, taken, left ? left : "none");
  return 0;
}
