// A library whose constructor waits for another thread, which calls functions of libc for the first
// time meanwhile, and for a child.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *other(void *unused) {
  poll(NULL, 0, 1);
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    execl("/bin/true", "true", (char *)NULL);
    _exit(1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  puts(status == 0 ? "right" : "wrong");
  return unused;
}

__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  alarm(60); // the loader's lock is held here
  if (pthread_create(&thread, NULL, other, NULL) == 0) pthread_join(thread, NULL);
}
