// Opens a plug-in by name, so that the loader looks where this program's own RUNPATH says, and
// calls it.
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *plugin = dlopen("libplugin.so", RTLD_NOW);
  if (!plugin) { puts(dlerror()); return 3; }
  int (*answer)(int) = (int (*)(int))dlsym(plugin, "answer");
  printf("%d\n", answer(200));
  return dlclose(plugin);
}
