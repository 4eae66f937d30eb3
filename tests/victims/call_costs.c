// What calls cost that are ready at once, of each kind that something of ours stands in front of:
// prints a line "NAME CALLS NANOSECONDS NANOSECONDS" for each, of CPU time of all its calls: as any
// program makes them, and past whatever stands in front of libc's functions, turn and turn about.
// Each is the least of many rounds, so short that some have no sample in them.
#define _GNU_SOURCE
#include <dlfcn.h>
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

#define EACH(X)                                                                                  \
  X(poll) X(ppoll) X(select) X(pselect) X(epoll_wait) X(epoll_pwait) X(nanosleep)                \
  X(clock_nanosleep) X(sem_timedwait) X(semop) X(sigtimedwait) X(syscall) X(read) X(write)       \
  X(readv) X(writev) X(send) X(recv) X(sendmsg) X(recvmsg) X(getrandom) X(sigprocmask) X(clock_gettime)
#define POINTER(name) __typeof__(&name) name;
struct functions { EACH(POINTER) };
static struct functions as_ever, of_libc;
static void find(void) {
  void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
#define FIND(name) as_ever.name = name, of_libc.name = (__typeof__(&name))dlsym(libc, #name);
  EACH(FIND)
}

#define COST(name, of, call) COST_OF(name, of, CALLS, call)
#define COST_OF(name, of, calls, call)                                              \
  do {                                                                              \
    double least[2] = {1e18, 1e18};                                                 \
    for (int round = 0; round < 2 * ROUNDS; round++) {                              \
      const struct functions *volatile chosen = round % 2 ? &of_libc : &as_ever;    \
      const struct functions *f = chosen;                                           \
      double from = now();                                                          \
      for (int i = 0; i < (calls); i++) { call; }                                   \
      double each = (now() - from) / (calls);                                       \
      if (each < least[round % 2]) least[round % 2] = each;                         \
    }                                                                               \
    printf("%s %d %.1f %.1f\n", name, of, least[0], least[1]);                      \
    fflush(stdout);                                                                 \
  } while (0)

int main(void) {
  find();
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
  COST("poll,-1", 1, f->poll(&ready, 1, -1));
  COST("poll,100ms*", 1, f->poll(&ready, 1, 100));
  COST("ppoll", 1, f->ppoll(&ready, 1, &second, &none));
  COST("select", 1, f->select(0, NULL, NULL, NULL, &no_time));
  COST("pselect", 1, f->pselect(0, NULL, NULL, NULL, &zero, NULL));
  COST("epoll_wait,0", 1, f->epoll_wait(epoll, &event, 1, 0));
  COST("epoll_wait,100ms*", 1, f->epoll_wait(epoll, &event, 1, 100));
  COST("epoll_pwait,100ms*", 1, f->epoll_pwait(epoll, &event, 1, 100, &none));
  // These two give the processor away, and get it back.
  COST_OF("nanosleep,0", 1, 10, f->nanosleep(&zero, NULL));
  COST_OF("clock_nanosleep,0", 1, 10, f->clock_nanosleep(CLOCK_MONOTONIC, 0, &zero, NULL));
  COST("sem_timedwait", 1, f->sem_timedwait(&semaphore, &second));
  COST("semop+semop", 2, (f->semop(set, &up, 1), f->semop(set, &down, 1)));
  COST("sigtimedwait*", 1, f->sigtimedwait(&usr1, NULL, &zero));
  COST("futex-by-number*", 1, f->syscall(SYS_futex, &word, 128, 0, &second, NULL, 0));
  COST("getppid-by-number", 1, f->syscall(SYS_getppid));
  COST("read+write", 2, (void)(f->read(full[0], &c, 1) + f->write(full[1], &c, 1)));
  COST("readv+writev", 2, (void)(f->readv(full[0], &piece, 1) + f->writev(full[1], &piece, 1)));
  COST("send+recv", 2, (void)(f->send(pair[1], &c, 1, 0) + f->recv(pair[0], &c, 1, 0)));
  COST("sendmsg+recvmsg", 2, (void)(f->sendmsg(pair[1], &message, 0) + f->recvmsg(pair[0], &message, 0)));
  COST("send+recv,all", 2, (void)(f->send(pair[1], &c, 1, 0) + f->recv(pair[0], &c, 1, MSG_WAITALL)));
  COST("send+recv,limited*", 2, (void)(f->send(limited[1], &c, 1, 0) + f->recv(limited[0], &c, 1, 0)));
  COST("getrandom", 1, (void)!f->getrandom(buffer, 64, 0));
  COST("sigprocmask", 1, f->sigprocmask(SIG_BLOCK, &usr1, NULL));
  struct timespec read;
  COST("reading-of-the-clock", 1, f->clock_gettime(CLOCK_MONOTONIC, &read));
  semctl(set, 0, IPC_RMID);
  return 0;
}
