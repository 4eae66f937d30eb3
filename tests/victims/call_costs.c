// What calls cost that are ready at once, of each kind that something of ours stands in front of:
// prints a line "NAME NANOSECONDS" for each, of CPU time: the least of many rounds, each so short
// that some have no sample in them.
#define _GNU_SOURCE
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 150, CALLS = 400 };
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

#define COST(name, call) COST_OF(name, CALLS, call)
#define COST_OF(name, calls, call)                \
  do {                                            \
    double least = 1e18;                          \
    for (int round = 0; round < ROUNDS; round++) { \
      double from = now();                        \
      for (int i = 0; i < (calls); i++) { call; } \
      double each = (now() - from) / (calls);     \
      if (each < least) least = each;             \
    }                                             \
    printf("%s %.0f\n", name, least);             \
    fflush(stdout);                               \
  } while (0)

int main(void) {
  int full[2], pair[2], limited[2];
  char c = 'x', buffer[4096];
  if (pipe(full) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || socketpair(AF_UNIX, SOCK_STREAM, 0, limited)) return 3;
  if (write(full[1], &c, 1) != 1) return 3;
  struct timeval limit = {1, 0};
  setsockopt(limited[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  struct pollfd ready = {full[0], POLLIN, 0};
  int epoll = epoll_create1(0), set = semget(IPC_PRIVATE, 1, 0600);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(epoll, EPOLL_CTL_ADD, full[0], &event);
  struct timespec zero = {0, 0}, second = {1, 0};
  struct timeval no_time = {0, 0};
  struct sembuf up = {0, 1, 0}, down = {0, -1, 0};
  struct iovec piece = {&c, 1};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  sigset_t none, usr1;
  sigemptyset(&none);
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  sem_t semaphore;
  sem_init(&semaphore, 0, 1000000000);
  int word = 1;
  COST("poll,-1", poll(&ready, 1, -1));
  COST("poll,100ms*", poll(&ready, 1, 100));
  COST("ppoll", ppoll(&ready, 1, &second, &none));
  COST("select", select(0, NULL, NULL, NULL, &no_time));
  COST("pselect", pselect(0, NULL, NULL, NULL, &zero, NULL));
  COST("epoll_wait,0", epoll_wait(epoll, &event, 1, 0));
  COST("epoll_wait,100ms*", epoll_wait(epoll, &event, 1, 100));
  COST("epoll_pwait,100ms*", epoll_pwait(epoll, &event, 1, 100, &none));
  // These two give the processor away, and get it back.
  COST_OF("nanosleep,0", 10, nanosleep(&zero, NULL));
  COST_OF("clock_nanosleep,0", 10, clock_nanosleep(CLOCK_MONOTONIC, 0, &zero, NULL));
  COST("sem_timedwait", sem_timedwait(&semaphore, &second));
  COST("semop(2)", (semop(set, &up, 1), semop(set, &down, 1)));
  COST("sigtimedwait*", sigtimedwait(&usr1, NULL, &zero));
  COST("futex-by-number*", syscall(SYS_futex, &word, 128, 0, &second, NULL, 0));
  COST("getppid-by-number", syscall(SYS_getppid));
  COST("read+write", (void)(read(full[0], &c, 1) + write(full[1], &c, 1)));
  COST("readv+writev", (void)(readv(full[0], &piece, 1) + writev(full[1], &piece, 1)));
  COST("send+recv", (void)(send(pair[1], &c, 1, 0) + recv(pair[0], &c, 1, 0)));
  COST("sendmsg+recvmsg", (void)(sendmsg(pair[1], &message, 0) + recvmsg(pair[0], &message, 0)));
  COST("recv,all", (void)(send(pair[1], &c, 1, 0) + recv(pair[0], &c, 1, MSG_WAITALL)));
  COST("recv,limited*", (void)(send(limited[1], &c, 1, 0) + recv(limited[0], &c, 1, 0)));
  COST("getrandom", (void)!getrandom(buffer, 64, 0));
  COST("sigprocmask", sigprocmask(SIG_BLOCK, &usr1, NULL));
  struct timespec read;
  COST("reading-of-the-clock", clock_gettime(CLOCK_MONOTONIC, &read));
  semctl(set, 0, IPC_RMID);
  return 0;
}
