// Makes calls that the kernel does not restart after a signal handler, and transfers that it cuts short:
// `interrupted libc|raw ROUNDS` prints a line "CALL INTERRUPTED SHORT" for each that was, by libc's functions or by raw system calls.
// No signal of its own is ever sent: every line is somebody else's doing.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/time_types.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int raw, epoll, pair[2], semaphores, queue;
static char *big;
enum { BIG = 16 << 20 };

static void *drain(void *fd) {
  static __thread char buffer[1 << 16];
  while (read((int)(long)fd, buffer, sizeof buffer) > 0) {}
  return NULL;
}

static const struct timespec soon = {0, 300000};
static struct timespec at(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_nsec += 300000;
  if (t.tv_nsec >= 1000000000) { t.tv_nsec -= 1000000000; t.tv_sec++; }
  return t;
}

static long c_poll(void) { return raw ? syscall(SYS_poll, NULL, 0, 1) : poll(NULL, 0, 1); }
static long c_ppoll(void) { struct timespec t = soon; return raw ? syscall(SYS_ppoll, NULL, 0, &t, NULL, 8) : ppoll(NULL, 0, &t, NULL); }
static long c_select(void) { struct timeval t = {0, 300}; return raw ? syscall(SYS_select, 0, NULL, NULL, NULL, &t) : select(0, NULL, NULL, NULL, &t); }
static long c_pselect(void) { struct timespec t = soon; return raw ? syscall(SYS_pselect6, 0, NULL, NULL, NULL, &t, NULL) : pselect(0, NULL, NULL, NULL, &t, NULL); }
static long c_epoll_wait(void) { struct epoll_event e; return raw ? syscall(SYS_epoll_wait, epoll, &e, 1, 1) : epoll_wait(epoll, &e, 1, 1); }
static long c_epoll_pwait(void) { struct epoll_event e; return raw ? syscall(SYS_epoll_pwait, epoll, &e, 1, 1, NULL, 8) : epoll_pwait(epoll, &e, 1, 1, NULL); }
static long c_nanosleep(void) { return raw ? syscall(SYS_nanosleep, &soon, NULL) : nanosleep(&soon, NULL); }
static long c_clock_nanosleep(void) {
  if (raw) return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &soon, NULL);
  int error = clock_nanosleep(CLOCK_MONOTONIC, 0, &soon, NULL);
  errno = error;
  return error ? -1 : 0;
}
static long c_usleep(void) { return raw ? syscall(SYS_nanosleep, &soon, NULL) : usleep(300); }
static long c_sem_timedwait(void) {
  static sem_t semaphore;
  struct timespec until = at();
  int word = 0;
  return raw ? syscall(SYS_futex, &word, 9 | 128 | 256, 0, &until, NULL, -1) : sem_timedwait(&semaphore, &until);
}
static long c_semtimedop(void) {
  struct sembuf down = {0, -1, 0};
  return raw ? syscall(SYS_semtimedop, semaphores, &down, 1, &soon) : semtimedop(semaphores, &down, 1, &soon);
}
static long c_recv(void) { char c; return raw ? syscall(SYS_recvfrom, pair[0], &c, 1, 0, NULL, NULL) : recv(pair[0], &c, 1, 0); }
static long c_recvmsg(void) {
  char c;
  struct iovec v = {&c, 1};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  return raw ? syscall(SYS_recvmsg, pair[0], &m, 0) : recvmsg(pair[0], &m, 0);
}
static long c_read_socket(void) { char c; return raw ? syscall(SYS_read, pair[0], &c, 1) : read(pair[0], &c, 1); }
static long c_sigtimedwait(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return raw ? syscall(SYS_rt_sigtimedwait, &set, NULL, &soon, 8) : sigtimedwait(&set, NULL, &soon);
}

// Transfers: what they did not do of what they were asked.
static long missing;
static long whole(long done, long asked) { if (done >= 0 && done < asked) missing++; return done; }
static int zero, null, pipes[2], sockets[2];
static long t_read(void) { return whole(raw ? syscall(SYS_read, zero, big, BIG) : read(zero, big, BIG), BIG); }
static long t_getrandom(void) { return whole(raw ? syscall(SYS_getrandom, big, BIG / 8, 0) : getrandom(big, BIG / 8, 0), BIG / 8); }
static long t_readv(void) { struct iovec v = {big, BIG}; return whole(raw ? syscall(SYS_readv, zero, &v, 1) : readv(zero, &v, 1), BIG); }
static long t_pread(void) { return whole(raw ? syscall(SYS_pread64, zero, big, BIG, 0) : pread(zero, big, BIG, 0), BIG); }
static long t_write_pipe(void) { return whole(raw ? syscall(SYS_write, pipes[1], big, BIG / 8) : write(pipes[1], big, BIG / 8), BIG / 8); }
static long t_writev_pipe(void) { struct iovec v = {big, BIG / 8}; return whole(raw ? syscall(SYS_writev, pipes[1], &v, 1) : writev(pipes[1], &v, 1), BIG / 8); }
static long t_send(void) { return whole(raw ? syscall(SYS_sendto, sockets[1], big, BIG / 8, 0, NULL, 0) : send(sockets[1], big, BIG / 8, 0), BIG / 8); }
static long t_write_socket(void) { return whole(raw ? syscall(SYS_write, sockets[1], big, BIG / 8) : write(sockets[1], big, BIG / 8), BIG / 8); }
static long t_sendmsg(void) {
  struct iovec v = {big, BIG / 8};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  return whole(raw ? syscall(SYS_sendmsg, sockets[1], &m, 0) : sendmsg(sockets[1], &m, 0), BIG / 8);
}

static const struct { const char *name; long (*call)(void); int share; } CALLS[] = {
  {"poll", c_poll, 1}, {"ppoll", c_ppoll, 1}, {"select", c_select, 1}, {"pselect", c_pselect, 1},
  {"epoll_wait", c_epoll_wait, 1}, {"epoll_pwait", c_epoll_pwait, 1}, {"nanosleep", c_nanosleep, 1},
  {"clock_nanosleep", c_clock_nanosleep, 1}, {"usleep", c_usleep, 1}, {"sem_timedwait", c_sem_timedwait, 1},
  {"semtimedop", c_semtimedop, 1}, {"recv", c_recv, 1}, {"recvmsg", c_recvmsg, 1}, {"read-socket", c_read_socket, 1},
  {"sigtimedwait", c_sigtimedwait, 1},
  {"read", t_read, 40}, {"readv", t_readv, 40}, {"pread", t_pread, 40}, {"getrandom", t_getrandom, 40},
  {"write-pipe", t_write_pipe, 40}, {"writev-pipe", t_writev_pipe, 40}, {"send", t_send, 40},
  {"write-socket", t_write_socket, 40}, {"sendmsg", t_sendmsg, 40},
};

int main(int count, char **arguments) {
  raw = count > 1 && !strcmp(arguments[1], "raw");
  int rounds = count > 2 ? atoi(arguments[2]) : 100;
  big = malloc(BIG);
  memset(big, 1, BIG);
  epoll = epoll_create1(0);
  socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
  struct timeval limit = {0, 4000};
  setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  semaphores = semget(IPC_PRIVATE, 1, 0600);
  queue = msgget(IPC_PRIVATE, 0600);
  zero = open("/dev/zero", O_RDONLY);
  if (pipe(pipes)) return 3;
  pthread_t thread;
  pthread_create(&thread, NULL, drain, (void *)(long)pipes[0]);
  pthread_create(&thread, NULL, drain, (void *)(long)sockets[0]);
  for (unsigned i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
    long interrupted = 0;
    missing = 0;
    for (int n = 0; n < (rounds + CALLS[i].share - 1) / CALLS[i].share; n++) {
      errno = 0;
      if (CALLS[i].call() < 0 && errno == EINTR) interrupted++;
    }
    if (interrupted || missing) printf("%s %ld %ld\n", CALLS[i].name, interrupted, missing);
  }
  // A sleep that is cut short says what is left.
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  unsigned left = raw ? 0 : sleep(1);
  clock_gettime(CLOCK_MONOTONIC, &after);
  long slept = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
  if (!raw && (left || slept < 999)) printf("sleep %u %ld\n", left, slept);
  semctl(semaphores, 0, IPC_RMID);
  msgctl(queue, IPC_RMID, NULL);
  return 0;
}
