// A thread for each kind of call that waits with a timeout: `timed_calls MS`. Each says whether its
// call timed out, as it must, and not before the time was over.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int pipes[2], sockets[2], polls, semaphores, word;
static sem_t semaphore;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static struct timespec span;
static long for_ms;

static struct timespec until(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  t.tv_sec += span.tv_sec;
  t.tv_nsec += span.tv_nsec;
  if (t.tv_nsec >= 1000000000) { t.tv_sec++; t.tv_nsec -= 1000000000; }
  return t;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

// Calls give 0 where they have timed out, else errno or what they gave.
static int gave(long result, int timed_out) {
  if (result >= 0) return timed_out == 0 ? (int)result : 1000;
  return errno == timed_out ? 0 : errno;
}
static int sleeps(void) { return gave(nanosleep(&span, NULL), 0); }
static int sleeps_until(void) {
  struct timespec t = until(CLOCK_MONOTONIC);
  return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}
static int polled(void) {
  struct pollfd place = {pipes[0], POLLIN, 0};
  return gave(poll(&place, 1, (int)for_ms), 0);
}
static int ppolled(void) {
  struct pollfd place = {pipes[0], POLLIN, 0};
  return gave(ppoll(&place, 1, &span, NULL), 0);
}
static int selected(void) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(pipes[0], &set);
  struct timeval time = {span.tv_sec, span.tv_nsec / 1000};
  return gave(select(pipes[0] + 1, &set, NULL, NULL, &time), 0);
}
static int epolled(void) {
  struct epoll_event event;
  return gave(epoll_wait(polls, &event, 1, (int)for_ms), 0);
}
static int epolled_masked(void) {
  struct epoll_event event;
  sigset_t none;
  sigemptyset(&none);
  return gave(epoll_pwait(polls, &event, 1, (int)for_ms, &none), 0);
}
static int futex(void) { return gave(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &span, NULL, 0), ETIMEDOUT); }
static int semaphore_waited(void) {
  struct timespec t = until(CLOCK_REALTIME);
  return gave(sem_timedwait(&semaphore, &t), ETIMEDOUT);
}
static int condition_waited(void) {
  struct timespec t = until(CLOCK_REALTIME);
  pthread_mutex_lock(&lock);
  int result = pthread_cond_timedwait(&condition, &lock, &t);
  pthread_mutex_unlock(&lock);
  return result == ETIMEDOUT ? 0 : 1000 + result;
}
static int signal_waited(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  return gave(sigtimedwait(&set, NULL, &span), EAGAIN);
}
static int received(void) {
  char byte;
  return gave(recv(sockets[0], &byte, 1, 0), EAGAIN);
}
static int operated(void) {
  struct sembuf operation = {0, -1, 0};
  return gave(semtimedop(semaphores, &operation, 1, &span), EAGAIN);
}

static struct call { const char *name; int (*make)(void); } calls[] = {
    {"nanosleep", sleeps},       {"clock_nanosleep", sleeps_until}, {"poll", polled},
    {"ppoll", ppolled},          {"select", selected},              {"epoll_wait", epolled},
    {"epoll_pwait", epolled_masked}, {"futex", futex},              {"sem_timedwait", semaphore_waited},
    {"pthread_cond_timedwait", condition_waited}, {"sigtimedwait", signal_waited}, {"recv", received},
    {"semtimedop", operated},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void *member(void *argument) {
  struct call *call = argument;
  double began = now();
  int result = call->make();
  int early = now() - began < for_ms - 1.0; // clocks of the kernel differ by a tick's rounding
  char line[120];
  int length = snprintf(line, sizeof line, "%s %s, %s\n", call->name, result ? strerror(result) : "timed out",
                        early ? "early" : "not early");
  if (write(1, line, (size_t)length) != length) _exit(1);
  return NULL;
}

int main(int count, char **arguments) {
  if (count < 2) return 2;
  for_ms = atol(arguments[1]);
  span = (struct timespec){for_ms / 1000, for_ms % 1000 * 1000000};
  struct timeval time = {span.tv_sec, span.tv_nsec / 1000};
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, NULL);
  semaphores = semget(IPC_PRIVATE, 1, 0600);
  polls = epoll_create1(0);
  if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || semaphores < 0 || polls < 0) return 1;
  if (setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) || sem_init(&semaphore, 0, 0)) return 1;
  pthread_t threads[CALLS];
  for (int i = 0; i < CALLS; i++) if (pthread_create(&threads[i], NULL, member, &calls[i])) return 1;
  for (int i = 0; i < CALLS; i++) pthread_join(threads[i], NULL);
  semctl(semaphores, 0, IPC_RMID);
  return 0;
}
