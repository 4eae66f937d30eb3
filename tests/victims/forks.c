// Children in every way: `forks WAY`. Prints what they did; children that misbehave show in the
// status.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void burn(long us) {
  struct timespec t;
  long start, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  start = now = t.tv_sec * 1000000 + t.tv_nsec / 1000;
  while (now - start < us) {
    for (volatile int i = 0; i < 2000; i++) {}
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    now = t.tv_sec * 1000000 + t.tv_nsec / 1000;
  }
}

static int reap(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// By the kernel's own hand: libc's functions for this are stood in front of.
static void reset_all_by_hand(void) {
  struct { unsigned long handler, flags, restorer, mask; } action = {0, 0, 0, 0};
  for (int signal = 1; signal < 65; signal++) syscall(SYS_rt_sigaction, signal, &action, NULL, 8);
}

static void reset_all(void) { for (int s = 1; s < 65; s++) { struct sigaction action = {.sa_handler = SIG_DFL}; sigaction(s, &action, NULL); } }

static volatile sig_atomic_t ticks;
static void tick(int signal) { ticks++; (void)signal; }

static void *worker(void *unused) { burn(30000); return unused; }
static int in_clone(void *unused) { burn(50000); _exit(unused ? 9 : 8); }

static void descriptors(const char *when) {
  printf("%s:", when);
  DIR *directory = opendir("/proc/self/fd");
  int own = dirfd(directory), seen[64] = {0};
  for (struct dirent *entry; (entry = readdir(directory));) { int fd = atoi(entry->d_name); if (entry->d_name[0] != '.' && fd != own && fd < 64) seen[fd] = 1; }
  closedir(directory);
  for (int fd = 0; fd < 64; fd++) if (seen[fd]) printf(" %d", fd);
  int next = dup(0);
  printf(" next %d\n", next);
  close(next);
}

// Mappings and descriptors of the process.
static int mappings(void) {
  int lines = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  for (int c; (c = getc(maps)) != EOF;) lines += c == '\n';
  fclose(maps);
  return lines;
}
static int opened(void) {
  int number = 0;
  DIR *directory = opendir("/proc/self/fd");
  while (readdir(directory)) number++;
  closedir(directory);
  return number;
}

// Each is the child of the one before, and every tenth lives to see itself sampled. Prints what the
// last one has more than the third.
static void chain(void) {
  int before[2] = {0, 0};
  for (int depth = 0; depth < 200; depth++) {
    pid_t pid = fork();
    if (pid != 0) exit(reap(pid));
    // Who counts has a ring of its own by then.
    if (depth % 10 == 1 || depth == 2) burn(15000);
    if (depth == 2) before[0] = mappings(), before[1] = opened();
  }
  burn(15000);
  printf("%d mappings, %d descriptors more\n", mappings() - before[0], opened() - before[1]);
  exit(7);
}

static void *leaves(void *quietly) {
  burn(2000);
  if (quietly) syscall(SYS_exit, 0);
  return quietly;
}

// Threads that end, without a word to libc or with one, one after the other. Prints how many
// mappings more there are than after the first ten.
static void leavers(int quietly) {
  int before = 0;
  for (int i = 0; i < 200; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, leaves, quietly ? &before : NULL);
    pthread_join(thread, NULL);
    if (i == 10) before = mappings();
  }
  printf("%d mappings more\n", mappings() - before);
}

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "";
  int sum = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(way, "fork")) {
    for (int i = 0; i < 20; i++) {
      pid_t pid = fork();
      if (pid == 0) { burn(20000); exit(i); }
      burn(5000);
      sum += reap(pid);
    }
    printf("%d\n", sum);
    burn(50000);
  } else if (!strcmp(way, "brief")) {
    for (int i = 0; i < 20; i++) {
      pid_t pid = fork();
      if (pid == 0) { burn(1000); exit(i); }
      sum += reap(pid);
    }
    printf("%d\n", sum);
  } else if (!strcmp(way, "grandchildren")) {
    for (int depth = 0; depth < 5; depth++) {
      burn(30000);
      pid_t pid = fork();
      if (pid != 0) { int status = reap(pid); if (depth == 0) printf("%d\n", status); exit(status + 1); }
    }
    burn(30000);
    exit(1);
  } else if (!strcmp(way, "threads")) {
    // A child of a process with running threads, which makes threads of its own.
    pthread_t thread;
    for (int i = 0; i < 4; i++) pthread_create(&thread, NULL, worker, NULL);
    for (int i = 0; i < 10; i++) {
      pid_t pid = fork();
      if (pid == 0) {
        pthread_t own;
        burn(i % 2 ? 20000 : 2000); // less than a tick of the kernel's clock, in every other
        pthread_create(&own, NULL, worker, NULL);
        pthread_join(own, NULL);
        exit(i);
      }
      sum += reap(pid);
    }
    printf("%d\n", sum);
  } else if (!strcmp(way, "vfork")) {
    for (int i = 0; i < 200; i++) {
      pid_t pid = vfork();
      if (pid == 0) { for (volatile int n = 0; n < 300000; n++) {} _exit(3); }
      sum += reap(pid);
    }
    printf("%d\n", sum);
    burn(100000);
  } else if (!strcmp(way, "clone")) {
    static char stack[65536] __attribute__((aligned(16)));
    signal(SIGPROF, tick);
    sum += reap(clone(in_clone, stack + sizeof stack, SIGCHLD, NULL));
    sum += reap(clone(in_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
    pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
      // libc was not told, and neither were we: a signal of the child's own must still be its own.
      struct itimerval every = {{0, 5000}, {0, 5000}};
      setitimer(ITIMER_PROF, &every, NULL);
      burn(300000);
      _exit(ticks > 5 ? 5 : 50);
    }
    sum += reap(pid);
    pid = _Fork();
    if (pid == 0) { burn(50000); _exit(6); }
    sum += reap(pid);
    printf("%d\n", sum);
  } else if (!strcmp(way, "reset") || !strcmp(way, "reset-by-hand")) {
    for (int i = 0; i < 10; i++) {
      pid_t pid = fork();
      if (pid == 0) {
        if (!strcmp(way, "reset")) reset_all(); else reset_all_by_hand();
        burn(30000);
        _exit(2);
      }
      sum += reap(pid);
    }
    printf("%d\n", sum);
  } else if (!strcmp(way, "descriptors")) {
    descriptors("start");
    burn(100000);
    descriptors("later");
    closefrom(3);
    burn(50000);
    descriptors("closed");
    for (int fd = 3; fd < 1024; fd++) close(fd);
    close_range(3, ~0u, 0);
    burn(50000);
    pid_t pid = fork();
    if (pid == 0) { descriptors("child"); burn(50000); descriptors("child later"); fflush(stdout); _exit(0); }
    printf("%d\n", reap(pid));
    int a = open("/dev/null", O_RDONLY), b = open("/dev/null", O_RDONLY);
    printf("%d %d\n", a, b);
  } else if (!strcmp(way, "chain")) {
    chain();
  } else if (!strcmp(way, "leavers") || !strcmp(way, "returners")) {
    leavers(way[0] == 'l');
  } else if (!strcmp(way, "exhausted")) {
    int opened = 0, threads = 0;
    struct rlimit limit = {100, 100};
    setrlimit(RLIMIT_NOFILE, &limit);
    while (open("/dev/null", O_RDONLY) >= 0) opened++;
    burn(100000);
    pthread_t thread;
    for (int i = 0; i < 4; i++) { threads += pthread_create(&thread, NULL, worker, NULL) == 0; pthread_join(thread, NULL); }
    pid_t pid = fork();
    if (pid == 0) { burn(50000); _exit(4); }
    printf("%d %d %d\n", opened, threads, reap(pid));
  } else return 2;
  return 0;
}
