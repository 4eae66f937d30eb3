// Runs a plug-in: `aio_host PLUGIN`.
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **arguments) {
  void *plugin = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "run") : NULL;
  if (!run) { puts(dlerror()); return 1; }
  return run();
}
