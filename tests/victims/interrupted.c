// Makes calls that the kernel does not restart after a signal handler, and transfers that it cuts
// short: `interrupted libc|handled|raw ROUNDS [CALL]` prints a line "CALL INTERRUPTED SHORT" for
// each that was, by libc's functions or by raw system calls; for that call alone, if it is given.
// No signal of its own is ever sent: every line is somebody else's doing.
#define _GNU_SOURCE
#include "bare.h"
#include <aio.h>
#include <errno.h>
#include <linux/io_uring.h>
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
#include <sys/mman.h>
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

extern ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags);
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

static long c_poll(void) { return raw ? bare(SYS_poll, NULL, 0, 1) : poll(NULL, 0, 1); }
static long c_ppoll(void) { struct timespec t = soon; return raw ? bare(SYS_ppoll, NULL, 0, &t, NULL, 8) : ppoll(NULL, 0, &t, NULL); }
static long c_select(void) { struct timeval t = {0, 300}; return raw ? bare(SYS_select, 0, NULL, NULL, NULL, &t) : select(0, NULL, NULL, NULL, &t); }
static long c_pselect(void) { struct timespec t = soon; return raw ? bare(SYS_pselect6, 0, NULL, NULL, NULL, &t, NULL) : pselect(0, NULL, NULL, NULL, &t, NULL); }
static long c_epoll_wait(void) { struct epoll_event e; return raw ? bare(SYS_epoll_wait, epoll, &e, 1, 1) : epoll_wait(epoll, &e, 1, 1); }
static long c_epoll_pwait(void) { struct epoll_event e; return raw ? bare(SYS_epoll_pwait, epoll, &e, 1, 1, NULL, 8) : epoll_pwait(epoll, &e, 1, 1, NULL); }
static long c_nanosleep(void) { return raw ? bare(SYS_nanosleep, &soon, NULL) : nanosleep(&soon, NULL); }
static long c_clock_nanosleep(void) {
  if (raw) return bare(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &soon, NULL);
  int error = clock_nanosleep(CLOCK_MONOTONIC, 0, &soon, NULL);
  errno = error;
  return error ? -1 : 0;
}
static long c_usleep(void) { return raw ? bare(SYS_nanosleep, &soon, NULL) : usleep(300); }
static long c_sem_timedwait(void) {
  static sem_t semaphore;
  struct timespec until = at();
  int word = 0;
  return raw ? bare(SYS_futex, &word, 9 | 128 | 256, 0, &until, NULL, -1) : sem_timedwait(&semaphore, &until);
}
static long c_semtimedop(void) {
  struct sembuf down = {0, -1, 0};
  return raw ? bare(SYS_semtimedop, semaphores, &down, 1, &soon) : semtimedop(semaphores, &down, 1, &soon);
}
static long c_recv(void) { char c; return raw ? bare(SYS_recvfrom, pair[0], &c, 1, 0, NULL, NULL) : recv(pair[0], &c, 1, 0); }
static long c_recvmsg(void) {
  char c;
  struct iovec v = {&c, 1};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  return raw ? bare(SYS_recvmsg, pair[0], &m, 0) : recvmsg(pair[0], &m, 0);
}
static long c_read_socket(void) { char c; return raw ? bare(SYS_read, pair[0], &c, 1) : read(pair[0], &c, 1); }
static long c_sigtimedwait(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return raw ? bare(SYS_rt_sigtimedwait, &set, NULL, &soon, 8) : sigtimedwait(&set, NULL, &soon);
}

static long c_aio_suspend(void) {
  static struct aiocb request;
  static const struct aiocb *list[1];
  if (!list[0]) {
    request = (struct aiocb){.aio_fildes = pair[1], .aio_buf = big, .aio_nbytes = 1};
    if (aio_read(&request)) return 0; // one that never ends
    list[0] = &request;
  }
  return raw ? 0 : aio_suspend(list, 1, &soon);
}
static long c_recv_chk(void) { char c[2]; volatile size_t one = 1; return raw ? 0 : __recv_chk(pair[0], c, one, sizeof c, 0); }
static long c_recvmmsg(void) {
  char c[2];
  struct iovec v[2] = {{c, 1}, {c + 1, 1}};
  struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = v + 1, .msg_iovlen = 1}}};
  long got = raw ? bare(SYS_recvmmsg, pair[0], m, 2, 0, NULL) : recvmmsg(pair[0], m, 2, 0, NULL);
  if (got < 0 && errno != EAGAIN && errno != EINTR) { printf("recvmmsg: errno %d\n", errno); }
  return got;
}
static long c_syscall_futex(void) { int word = 0; return raw ? 0 : syscall(SYS_futex, &word, 0 | 128, 0, &soon, NULL, 0); }
static long c_syscall_poll(void) { return raw ? 0 : syscall(SYS_poll, NULL, 0, 1); }
static long c_syscall_nanosleep(void) { return raw ? 0 : syscall(SYS_nanosleep, &soon, NULL); }

// Transfers: what they did not do of what they were asked.
static long missing;
static long whole(long done, long asked) { if (done >= 0 && done < asked) missing++; return done; }
static int zero, urandom, pipes[2], sockets[2];
static long t_read(void) { return whole(raw ? bare(SYS_read, zero, big, BIG) : read(zero, big, BIG), BIG); }
static long t_getrandom(void) { return whole(raw ? bare(SYS_getrandom, big, BIG / 8, 0) : getrandom(big, BIG / 8, 0), BIG / 8); }
static long t_readv(void) { struct iovec v = {big, BIG}; return whole(raw ? bare(SYS_readv, zero, &v, 1) : readv(zero, &v, 1), BIG); }
static long t_pread(void) { return whole(raw ? bare(SYS_pread64, zero, big, BIG, 0) : pread(zero, big, BIG, 0), BIG); }
static long t_write_pipe(void) { return whole(raw ? bare(SYS_write, pipes[1], big, BIG / 8) : write(pipes[1], big, BIG / 8), BIG / 8); }
static long t_writev_pipe(void) { struct iovec v = {big, BIG / 8}; return whole(raw ? bare(SYS_writev, pipes[1], &v, 1) : writev(pipes[1], &v, 1), BIG / 8); }
static long t_send(void) { return whole(raw ? bare(SYS_sendto, sockets[1], big, BIG / 8, 0, NULL, 0) : send(sockets[1], big, BIG / 8, 0), BIG / 8); }
static long t_write_socket(void) { return whole(raw ? bare(SYS_write, sockets[1], big, BIG / 8) : write(sockets[1], big, BIG / 8), BIG / 8); }
static long t_sendmsg(void) {
  struct iovec v = {big, BIG / 8};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  return whole(raw ? bare(SYS_sendmsg, sockets[1], &m, 0) : sendmsg(sockets[1], &m, 0), BIG / 8);
}

enum { MIDDLE = 60000, MANY = 256 };
extern ssize_t __pread_chk(int fd, void *buffer, size_t size, off_t offset, size_t room);
static long t_read_middle(void) {
  for (int i = 0; i < 200; i++) whole(raw ? bare(SYS_read, zero, big, MIDDLE) : read(zero, big, MIDDLE), MIDDLE);
  return 0;
}
static long t_pread_middle(void) {
  for (int i = 0; i < 200; i++) whole(raw ? bare(SYS_pread64, zero, big, MIDDLE, 0) : pread(zero, big, MIDDLE, 0), MIDDLE);
  return 0;
}
static long t_read_random(void) {
  for (int i = 0; i < 20; i++) whole(raw ? bare(SYS_read, urandom, big, MIDDLE) : read(urandom, big, MIDDLE), MIDDLE);
  return 0;
}
static long t_pread_chk(void) { return raw ? 0 : whole(__pread_chk(zero, big, BIG, 0, BIG), BIG); }
static long t_preadv(void) { struct iovec v = {big, BIG}; return raw ? 0 : whole(preadv(zero, &v, 1, 0), BIG); }
static long t_preadv2(void) { struct iovec v = {big, BIG}; return raw ? 0 : whole(preadv2(zero, &v, 1, -1, 0), BIG); }
static long t_pwritev2(void) { struct iovec v = {big, BIG / 8}; return raw ? 0 : whole(pwritev2(pipes[1], &v, 1, -1, 0), BIG / 8); }
static long t_sendmmsg(void) {
  static struct iovec v = {0, 1 << 12};
  static struct mmsghdr m[MANY];
  v.iov_base = big;
  for (int i = 0; i < MANY; i++) m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
  return whole(raw ? bare(SYS_sendmmsg, sockets[1], m, MANY, 0) : sendmmsg(sockets[1], m, MANY, 0), MANY);
}

static long t_copy_file_range(void) {
  static int from, to;
  if (!from) {
    from = memfd_create("from", 0);
    to = memfd_create("to", 0);
    if (write(from, big, BIG) != BIG) perror("memfd");
  }
  off_t in = 0, out = 0;
  return whole(raw ? bare(SYS_copy_file_range, from, &in, to, &out, BIG, 0) : copy_file_range(from, &in, to, &out, BIG, 0), BIG);
}
// One request of an io_uring, which takes its time, and the wait for its result in the same call.
static long t_io_uring(void) {
  static int ring;
  static struct io_uring_params p;
  static char *queues;
  static struct io_uring_sqe *requests;
  static struct __kernel_timespec time = {0, 300000};
  if (!ring) {
    ring = syscall(SYS_io_uring_setup, 1, &p);
    if (ring < 0) return 0; // may be forbidden
    size_t size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    queues = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    requests = mmap(NULL, sizeof *requests, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
  }
  // Before Linux 5.11 a wait that was ended is not made again.
  if (ring < 0 || !(p.features & IORING_FEAT_EXT_ARG)) return 0;
  unsigned *sent = (unsigned *)(queues + p.sq_off.tail), *taken = (unsigned *)(queues + p.cq_off.head);
  unsigned *come = (unsigned *)(queues + p.cq_off.tail);
  *requests = (struct io_uring_sqe){.opcode = IORING_OP_TIMEOUT, .fd = -1, .addr = (unsigned long)&time, .len = 1};
  ((unsigned *)(queues + p.sq_off.array))[0] = 0;
  __atomic_store_n(sent, *sent + 1, __ATOMIC_RELEASE);
  // On its way to sleep the thread is in the kernel long enough for a sample to come.
  for (volatile int i = 0; i < 20000; i++) {}
  int flags = IORING_ENTER_GETEVENTS;
  long done = raw ? bare(SYS_io_uring_enter, ring, 1, 1, flags, NULL, 8) : syscall(SYS_io_uring_enter, ring, 1, 1, flags, NULL, 8);
  if (__atomic_load_n(come, __ATOMIC_ACQUIRE) == *taken) missing++;
  while (__atomic_load_n(come, __ATOMIC_ACQUIRE) == *taken) usleep(100);
  __atomic_store_n(taken, *taken + 1, __ATOMIC_RELEASE);
  return done;
}

static const struct { const char *name; long (*call)(void); int share; } CALLS[] = {
  {"poll", c_poll, 1}, {"ppoll", c_ppoll, 1}, {"select", c_select, 1}, {"pselect", c_pselect, 1},
  {"epoll_wait", c_epoll_wait, 1}, {"epoll_pwait", c_epoll_pwait, 1}, {"nanosleep", c_nanosleep, 1},
  {"clock_nanosleep", c_clock_nanosleep, 1}, {"usleep", c_usleep, 1}, {"sem_timedwait", c_sem_timedwait, 1},
  {"semtimedop", c_semtimedop, 1}, {"recv", c_recv, 1}, {"recvmsg", c_recvmsg, 1}, {"read-socket", c_read_socket, 1},
  {"sigtimedwait", c_sigtimedwait, 1}, {"aio_suspend", c_aio_suspend, 1}, {"recv_chk", c_recv_chk, 1}, {"recvmmsg", c_recvmmsg, 1},
  {"syscall-futex", c_syscall_futex, 1}, {"syscall-poll", c_syscall_poll, 1}, {"syscall-nanosleep", c_syscall_nanosleep, 1},
  {"read-middle", t_read_middle, 10}, {"pread-middle", t_pread_middle, 10}, {"read-random", t_read_random, 10},
  {"pread_chk", t_pread_chk, 40}, {"preadv", t_preadv, 40}, {"preadv2", t_preadv2, 40}, {"pwritev2", t_pwritev2, 40},
  {"sendmmsg", t_sendmmsg, 10},
  {"read", t_read, 40}, {"readv", t_readv, 40}, {"pread", t_pread, 40}, {"getrandom", t_getrandom, 40},
  {"write-pipe", t_write_pipe, 40}, {"writev-pipe", t_writev_pipe, 40}, {"send", t_send, 40},
  {"write-socket", t_write_socket, 40}, {"sendmsg", t_sendmsg, 40},
  {"copy_file_range", t_copy_file_range, 40}, {"io_uring", t_io_uring, 1},
};

static void never(int signal) { printf("handled %d\n", signal); }

int main(int count, char **arguments) {
  raw = count > 1 && !strcmp(arguments[1], "raw");
  if (count > 1 && !strcmp(arguments[1], "handled")) {
    // For a signal that never comes.
    struct sigaction action = {.sa_handler = never, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
  }
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
  urandom = open("/dev/urandom", O_RDONLY);
  if (pipe(pipes)) return 3;
  pthread_t thread;
  pthread_create(&thread, NULL, drain, (void *)(long)pipes[0]);
  pthread_create(&thread, NULL, drain, (void *)(long)sockets[0]);
  for (unsigned i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
    if (count > 3 && strcmp(arguments[3], CALLS[i].name)) continue;
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
