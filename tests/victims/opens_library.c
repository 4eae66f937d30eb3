// Loads the library that it is given.
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
  if (count == 2 && dlopen(arguments[1], RTLD_NOW)) return 0;
  puts("not loaded");
  return 1;
}
