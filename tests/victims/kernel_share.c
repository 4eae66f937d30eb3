// Programs that spend most of their time in the kernel, each in another way. Usage: kernel_share
// WAY MILLISECONDS, which are CPU time where the way always works, and wall time where it waits:
// then a tenth of a second of CPU time is used all the same.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int waits;
static double end;

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static int going_on(void) {
  return (waits && now(CLOCK_MONOTONIC) < end) || now(CLOCK_PROCESS_CPUTIME_ID) < (waits ? 0.1 : end);
}

static void *fresh(size_t size, int flags) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (memory == MAP_FAILED) { perror("mmap"); exit(1); }
  return memory;
}

// A call of seconds: nothing of it comes back to the program before its end.
static void one_long_call(int raw) {
  size_t size = (size_t)256 << 20;
  char *memory = fresh(size, 0);
  int zero = open("/dev/zero", O_RDONLY);
  while (going_on()) {
    long count = raw ? syscall(SYS_read, zero, memory, size) : read(zero, memory, size);
    if (count <= 0 || (!raw && (size_t)count != size)) { fprintf(stderr, "read: %ld\n", count); exit(1); }
  }
}

// Calls that a signal cuts short behind any page.
static void random_bytes(size_t size) {
  char *memory = fresh(size, MAP_POPULATE);
  int random = open("/dev/urandom", O_RDONLY);
  while (going_on()) if (read(random, memory, size) != (ssize_t)size) { perror("read"); exit(1); }
}

static void populate(void) {
  while (going_on()) {
    size_t size = (size_t)1 << 30;
    munmap(fresh(size, MAP_POPULATE), size);
  }
}

static void faults(void) {
  size_t size = (size_t)64 << 20;
  while (going_on()) {
    char *memory = fresh(size, 0);
    for (size_t at = 0; at < size; at += 4096) memory[at] = 1;
    munmap(memory, size);
  }
}

static void write_and_sync(void) {
  char path[] = "/tmp/kernel_share.XXXXXX";
  int file = mkstemp(path);
  static char block[1 << 20];
  unlink(path);
  for (int turn = 0; going_on(); turn++) {
    if (turn % 16 == 0) lseek(file, 0, SEEK_SET);
    if (write(file, block, sizeof block) != (ssize_t)sizeof block || fsync(file) != 0) { perror("write"); exit(1); }
  }
}

static uint32_t turn_of;

static void *pass(void *other) {
  uint32_t own = other == NULL, next = !own;
  while (going_on()) {
    while (__atomic_load_n(&turn_of, __ATOMIC_ACQUIRE) != own) {
      struct timespec limit = {0, 10000000};
      syscall(SYS_futex, &turn_of, FUTEX_WAIT, next, &limit, NULL, 0);
      if (!going_on()) return NULL;
    }
    __atomic_store_n(&turn_of, next, __ATOMIC_RELEASE);
    syscall(SYS_futex, &turn_of, FUTEX_WAKE, 1, NULL, NULL, 0);
  }
  return NULL;
}

static void futexes(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, pass, &thread);
  pass(NULL);
  pthread_join(thread, NULL);
}

static void polls(void) {
  // One that is ready, so that calls which may wait do not; and one that never is.
  int full[2], empty[2];
  if (pipe(full) != 0 || pipe(empty) != 0 || write(full[1], "x", 1) != 1) exit(1);
  struct pollfd ready[64], waiting[64];
  for (int i = 0; i < 64; i++) {
    ready[i] = (struct pollfd){full[0], POLLIN, 0};
    waiting[i] = (struct pollfd){empty[0], POLLIN, 0};
  }
  while (going_on()) {
    for (int i = 0; i < 500; i++)
      if (poll(ready, 64, 1) != 64 || poll(waiting, 64, 0) != 0) { perror("poll"); exit(1); }
    if (poll(waiting, 64, 1) != 0) { perror("poll"); exit(1); }
  }
}

static void naps(void) {
  while (going_on()) {
    struct timespec nap = {0, 20000};
    if (nanosleep(&nap, NULL) != 0) { perror("nanosleep"); exit(1); }
  }
}

static void send_file(void) {
  char path[] = "/tmp/kernel_share.XXXXXX";
  int file = mkstemp(path), null = open("/dev/null", O_WRONLY), ends[2];
  size_t size = (size_t)8 << 20;
  unlink(path);
  if (ftruncate(file, size) != 0 || pipe(ends) != 0) exit(1);
  while (going_on()) {
    off_t from = 0;
    while (from < (off_t)size) {
      ssize_t sent = sendfile(ends[1], file, &from, 32 << 10);
      if (sent <= 0 || splice(ends[0], NULL, null, NULL, sent, 0) != sent) { perror("sendfile"); exit(1); }
    }
  }
}

static void *touch_and_end(void *unused) {
  size_t size = (size_t)4 << 20;
  char *memory = fresh(size, MAP_POPULATE);
  munmap(memory, size);
  return unused;
}

static void exiting_threads(void) {
  while (going_on()) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, touch_and_end, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  }
}

// Its memory is taken apart by the kernel when it exits: a long end.
static void long_end(void) {
  while (going_on()) fresh((size_t)256 << 20, MAP_POPULATE);
}

static volatile sig_atomic_t ticks;
static void tick(int unused) { (void)unused, ticks++; }

// Signals of the program's own interrupt it all the time.
static void signals(void) {
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, NULL, &timer);
  struct itimerspec often = {{0, 200000}, {0, 200000}};
  timer_settime(timer, 0, &often, NULL);
  int zero = open("/dev/zero", O_RDONLY);
  static char block[16 << 10];
  while (going_on()) if (read(zero, block, sizeof block) <= 0) exit(1);
}

// A call that works for a while and then sleeps for good: the pipe holds half of what is written.
// Before it, calls that work for 2 ms of CPU time, so that no machine is too fast to be sampled.
static void *fill_and_sleep(void *unused) {
  size_t half = (size_t)1 << 20;
  int ends[2];
  if (pipe(ends) != 0 || fcntl(ends[1], F_SETPIPE_SZ, (int)half) < 0) { perror("pipe"); exit(1); }
  for (double begun = now(CLOCK_THREAD_CPUTIME_ID); now(CLOCK_THREAD_CPUTIME_ID) < begun + 2e-3;)
    munmap(fresh(half, MAP_POPULATE), half);
  char *memory = fresh(2 * half, MAP_POPULATE);
  if (write(ends[1], memory, 2 * half) != 0) exit(1);
  return unused;
}

static void asleep(void) {
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, fill_and_sleep, NULL);
  while (going_on()) poll(NULL, 0, 10);
  fill_and_sleep(NULL);
}

int main(int count, char **arguments) {
  const char *way = count > 2 ? arguments[1] : "";
  waits = !strcmp(way, "fsync") || !strcmp(way, "futex") || !strcmp(way, "nanosleep") || !strcmp(way, "asleep");
  end = (waits ? now(CLOCK_MONOTONIC) : 0) + (count > 2 ? atof(arguments[2]) : 0) * 1e-3;
  if (!strcmp(way, "read")) one_long_call(0);
  else if (!strcmp(way, "read-raw")) one_long_call(1);
  else if (!strcmp(way, "random")) random_bytes((size_t)1 << 20);
  else if (!strcmp(way, "random-page")) random_bytes(4096);
  else if (!strcmp(way, "populate")) populate();
  else if (!strcmp(way, "stubborn")) { signal(SIGTERM, SIG_IGN); populate(); }
  else if (!strcmp(way, "faults")) faults();
  else if (!strcmp(way, "fsync")) write_and_sync();
  else if (!strcmp(way, "futex")) futexes();
  else if (!strcmp(way, "poll")) polls();
  else if (!strcmp(way, "nanosleep")) naps();
  else if (!strcmp(way, "sendfile")) send_file();
  else if (!strcmp(way, "threads")) exiting_threads();
  else if (!strcmp(way, "exit")) long_end();
  else if (!strcmp(way, "signals")) signals();
  else if (!strcmp(way, "asleep")) asleep();
  else return 2;
  return 0;
}
