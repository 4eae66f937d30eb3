// What not to do: a library that stands in front of dlopen.
#define _GNU_SOURCE
#include <dlfcn.h>
void *dlopen(const char *name, int flags) {
  void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  void *volatile result = real(name, flags); // not a tail call, as in any wrapper that does something
  return result;
}
