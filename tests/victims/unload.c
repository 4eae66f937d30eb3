// Threads that open, call and close plug-ins over and over, while others burn and throw nothing
// away: `unload ROUNDS PLUGIN…`.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static int rounds, plugins, stop;
static char **paths;
static void *burn(void *unused) {
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) for (volatile int i = 0; i < 1000; i++) {}
  return unused;
}
static void *churn(void *number) {
  long sum = 0;
  for (int i = 0; i < rounds; i++) {
    void *plugin = dlopen(paths[(i + (long)number) % plugins], i % 2 ? RTLD_NOW : RTLD_LAZY);
    if (!plugin) { puts(dlerror()); exit(3); }
    sum += ((int (*)(int))dlsym(plugin, "answer"))(1);
    if (dlclose(plugin)) exit(4);
  }
  return (void *)sum;
}
int main(int count, char **arguments) {
  rounds = atoi(arguments[1]);
  paths = arguments + 2;
  plugins = count - 2;
  pthread_t burner, all[3];
  pthread_create(&burner, NULL, burn, NULL);
  long sum = 0;
  for (long i = 0; i < 3; i++) pthread_create(&all[i], NULL, churn, (void *)i);
  for (int i = 0; i < 3; i++) { void *result; pthread_join(all[i], &result); sum += (long)result; }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  pthread_join(burner, NULL);
  printf("%ld\n", sum);
  return 0;
}
