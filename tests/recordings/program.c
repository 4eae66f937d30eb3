// What tests/recordings/*.rsu were made of: two threads, each in functions of known depth.
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
__attribute__((noinline)) static void compute(void) { for (volatile int i = 0; i < 100000; i++) {} }
__attribute__((noinline)) static void transfer(int fd) { char block[65536]; for (int i = 0; i < 30; i++) if (read(fd, block, sizeof block) < 0) _exit(1); }
__attribute__((noinline)) static void *work(void *kernel) {
  int fd = open("/dev/zero", O_RDONLY);
  while (cpu() < 0.3) { if (kernel) transfer(fd); else compute(); }
  return kernel;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, "kernel");
  work(NULL);
  pthread_join(thread, NULL);
}
