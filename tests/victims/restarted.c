// Calls that a signal ends, and that must not be seen to have been ended: `restarted WAY [NUMBER]`
// prints a line for each that was, or that ended before its time.
//   storm ROUNDS      sleeps and waits of all kinds
//   own SIGNAL        a signal of its own must end every call that it comes in: "lost" counts those
//   that went on limited           a socket that had a time limit before exec
//   passed            one that came by SCM_RIGHTS
//   full ROUNDS       a socket with a time limit for sending that has no room for it
//   pieces ROUNDS     a vector of many pieces through a pipe and a socket: each byte once, in order
//   all ROUNDS        recv() and recvmsg() that wait for all of it, which comes in little by little
//   many ROUNDS       calls that look at so many descriptors that the next sample comes before they
//   are through elsewhere ROUNDS  poll() by an instruction that stands far from where the number is
//   loaded
#define _GNU_SOURCE
#include "bare.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static void work(int amount) { for (volatile int i = 0; i < amount; i++) {} }

static int empty[2], epoll, epoll_alarm;
static sem_t semaphore;
static const struct timespec nap = {0, 200000};
static long c_poll(void) { struct pollfd p = {empty[0], POLLIN, 0}; return poll(&p, 1, 1); }
static long c_ppoll(void) { struct pollfd p = {empty[0], POLLIN, 0}; return ppoll(&p, 1, &nap, NULL); }
static long c_epoll(void) { struct epoll_event e; return epoll_wait(epoll, &e, 1, 1); }
static long c_epoll_pwait(void) { struct epoll_event e; return epoll_pwait(epoll, &e, 1, 1, NULL); }
static long c_select(void) { struct timeval t = {0, 200}; return select(0, NULL, NULL, NULL, &t); }
static long c_pselect(void) { return pselect(0, NULL, NULL, NULL, &nap, NULL); }
static long c_nanosleep(void) { return nanosleep(&nap, NULL); }
static long c_nanosleep_left(void) { struct timespec t = nap; return nanosleep(&t, &t); }
static long c_clock_nanosleep(void) { errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL); return errno ? -1 : 0; }
static long c_usleep(void) { return usleep(200); }
static long c_futex(void) { int word = 0; long r = syscall(SYS_futex, &word, 128, 0, &nap, NULL, 0); return errno == ETIMEDOUT ? 0 : r; }
static long c_sem(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_nsec += 200000;
  if (t.tv_nsec >= 1000000000) { t.tv_nsec -= 1000000000; t.tv_sec++; }
  long r = sem_timedwait(&semaphore, &t);
  return errno == ETIMEDOUT ? 0 : r;
}
// Waits without an end, for something that comes.
static int alarm_fd;
static struct pollfd armed(void) {
  struct itimerspec once = {{0, 0}, {0, 200000}};
  timerfd_settime(alarm_fd, 0, &once, NULL);
  return (struct pollfd){alarm_fd, POLLIN, 0};
}
static long c_poll_on(void) { struct pollfd p = armed(); return poll(&p, 1, -1); }
static long c_ppoll_on(void) { struct pollfd p = armed(); return ppoll(&p, 1, NULL, NULL); }
static long c_epoll_on(void) { struct epoll_event e; armed(); return epoll_wait(epoll_alarm, &e, 1, -1); }
static long c_sigtimedwait(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  long r = sigtimedwait(&set, NULL, &nap);
  return errno == EAGAIN ? 0 : r;
}
static const struct { const char *name; long (*call)(void); double us; } CALLS[] = {
  {"poll", c_poll, 1000}, {"ppoll", c_ppoll, 200}, {"epoll_wait", c_epoll, 1000}, {"epoll_pwait", c_epoll_pwait, 1000},
  {"select", c_select, 200}, {"pselect", c_pselect, 200}, {"nanosleep", c_nanosleep, 200},
  {"nanosleep with rest", c_nanosleep_left, 200}, {"clock_nanosleep", c_clock_nanosleep, 200}, {"usleep", c_usleep, 200},
  {"futex", c_futex, 200}, {"sem_timedwait", c_sem, 0}, {"sigtimedwait", c_sigtimedwait, 200},
  {"poll on", c_poll_on, 0}, {"ppoll on", c_ppoll_on, 0}, {"epoll_wait on", c_epoll_on, 0},
};

static void storm(int rounds) {
  for (unsigned i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
    int ended = 0, early = 0, failed = 0;
    for (int n = 0; n < rounds; n++) {
      work(5000 + n * 37 % 5000);
      double from = now();
      errno = 0;
      long result = CALLS[i].call();
      int error = errno;
      if (result < 0 && error == EINTR) ended++;
      else if (result < 0) failed++;
      else if (now() - from < CALLS[i].us - 1) early++;
    }
    if (ended || early || failed) printf("%s: %d ended, %d early, %d failed\n", CALLS[i].name, ended, early, failed);
  }
}

static volatile int came, at_instruction;
static void seen(int signal, siginfo_t *info, void *context) {
  const unsigned char *pc = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
  // On the instruction: the call has not been ended, and is to be made (again).
  at_instruction = pc[0] == 0x0f && pc[1] == 0x05;
  came++;
  (void)signal, (void)info;
}
static void own(int signal) {
  struct sigaction action = {.sa_sigaction = seen, .sa_flags = SA_SIGINFO};
  sigaction(signal, &action, NULL);
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  int lost = 0, ended = 0;
  for (int n = 0; n < 3000; n++) {
    // A second one ends what the first did not.
    struct itimerspec when = {{0, 20000000}, {0, 30000 + n % 50000}}, never = {{0, 0}, {0, 0}};
    char c;
    struct pollfd p = {empty[0], POLLIN, 0};
    came = 0;
    timer_settime(timer, 0, &when, NULL);
    long result = n % 2 ? read(empty[0], &c, 1) : poll(&p, 1, -1);
    int error = errno;
    timer_settime(timer, 0, &never, NULL);
    if (result != -1 || error != EINTR) printf("%ld %d\n", result, error);
    else ended++;
    if (came > 1 && at_instruction) lost++;
  }
  printf("ended %d, lost %d\n", ended, lost);
}

// Such limits are kept to the next ticks of the kernel's own clock: 8 ms each.
enum { ROUNDS_LIMITED = 500 };
static void limited(int fd, int rounds) {
  int ended = 0;
  for (int i = 0; i < rounds; i++) {
    char c;
    work(3000 + i * 37 % 3000);
    if (recv(fd, &c, 1, 0) < 0 && errno == EINTR) ended++;
  }
  if (ended) printf("recv: %d ended\n", ended);
}
static int socket_with_limit(void) {
  int pair[2];
  struct timeval limit = {0, 1000};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(3);
  setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return pair[0];
}
static void full(int rounds) {
  int pair[2], ended[4] = {0}, other[4] = {0};
  static char bytes[4096];
  struct timeval limit = {0, 1000};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(3);
  while (send(pair[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
  setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  struct iovec piece = {bytes, sizeof bytes};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  for (int i = 0; i < 4 * rounds; i++) {
    work(3000 + i * 37 % 3000);
    ssize_t result = i % 4 == 0   ? write(pair[0], bytes, 100)
                     : i % 4 == 1 ? send(pair[0], bytes, sizeof bytes, 0)
                     : i % 4 == 2 ? writev(pair[0], &piece, 1)
                                  : sendmsg(pair[0], &message, 0);
    if (result >= 0 || (errno != EINTR && errno != EAGAIN)) other[i % 4]++;
    else if (errno == EINTR) ended[i % 4]++;
  }
  for (int i = 0; i < 4; i++) if (ended[i] || other[i]) printf("sending %d: %d ended, %d other\n", i, ended[i], other[i]);
}
static void passed(void) {
  int way[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, way)) exit(3);
  char byte = 1, space[CMSG_SPACE(sizeof(int))];
  struct iovec piece = {&byte, 1};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  pid_t child = fork();
  if (!child) {
    int fd = socket_with_limit();
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    sendmsg(way[1], &message, 0);
    pause();
  }
  if (recvmsg(way[0], &message, 0) != 1) exit(3);
  int fd;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  limited(fd, ROUNDS_LIMITED);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

enum { PIECES = 7, PIECE = 60001, ALL = PIECES * PIECE };
static unsigned char out[ALL], in[ALL];
static void *reader(void *fd) {
  size_t got = 0;
  while (got < ALL) {
    ssize_t n = read((int)(long)fd, in + got, 3001);
    if (n <= 0) break;
    got += n;
  }
  return (void *)got;
}
static void pieces(int rounds) {
  for (size_t i = 0; i < ALL; i++) out[i] = i * 2654435761u >> 13;
  for (int n = 0; n < rounds; n++) {
    int ends[2];
    int is_socket = n % 3, failed = is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends);
    if (failed) exit(3);
    struct iovec vector[PIECES];
    for (int i = 0; i < PIECES; i++) vector[i] = (struct iovec){out + i * PIECE, PIECE};
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = PIECES};
    memset(in, 0, ALL);
    pthread_t thread;
    pthread_create(&thread, NULL, reader, (void *)(long)ends[0]);
    ssize_t done = is_socket == 1 ? sendmsg(ends[1], &message, 0) : writev(ends[1], vector, PIECES);
    if (done != ALL) printf("round %d: %zd of %d\n", n, done, ALL);
    close(ends[1]);
    void *got;
    pthread_join(thread, &got);
    close(ends[0]);
    if ((size_t)got != ALL || memcmp(in, out, ALL)) printf("round %d: other bytes\n", n);
  }
}

enum { WHOLE = 60000, LITTLE = 250 };
static void *trickle(void *fd) {
  for (int i = 0; i < WHOLE; i += LITTLE) {
    if (write((int)(long)fd, out + i, LITTLE) != LITTLE) return NULL;
    work(3000);
  }
  return NULL;
}
static void all_of_it(int rounds) {
  for (size_t i = 0; i < ALL; i++) out[i] = i * 2654435761u >> 13;
  for (int n = 0; n < rounds; n++) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(3);
    memset(in, 0, WHOLE);
    struct iovec pieces[4] = {{in, 7}, {in, 0}, {in + 7, WHOLE / 2}, {in + 7 + WHOLE / 2, WHOLE / 2 - 7}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 4};
    pthread_t thread;
    pthread_create(&thread, NULL, trickle, (void *)(long)pair[1]);
    ssize_t got = n % 2 ? recv(pair[0], in, WHOLE, MSG_WAITALL) : recvmsg(pair[0], &message, MSG_WAITALL);
    if (got != WHOLE) printf("%s: %zd\n", n % 2 ? "recv" : "recvmsg", got);
    else if (memcmp(in, out, WHOLE)) printf("%s: other bytes\n", n % 2 ? "recv" : "recvmsg");
    shutdown(pair[0], SHUT_RDWR);
    pthread_join(thread, NULL);
    close(pair[0]);
    close(pair[1]);
  }
}

enum { MANY = 19000 };
static volatile int blocked, alarms, in_call;
static void alarmed(int signal, siginfo_t *info, void *context) {
  unsigned long mask = 0;
  // It has ended a call, or stands before one.
  const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *pc = (void *)registers[REG_RIP];
  in_call = registers[REG_RAX] == -EINTR ? pc[-2] == 0x0f && pc[-1] == 0x05 : pc[0] == 0x0f && pc[1] == 0x05;
  bare(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8);
  if (mask & (1ul << (SIGPROF - 1) | 1ul << (SIGURG - 1))) blocked++;
  alarms++;
  (void)signal, (void)info;
}
static void many(int rounds) {
  static struct pollfd all[MANY];
  static unsigned long set[(MANY + 200) / 64], now_set[(MANY + 200) / 64];
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  int count = 0, highest = 0;
  while (count < MANY) {
    int fd = dup(empty[0]);
    if (fd < 0 || fd >= MANY + 100) break;
    all[count++] = (struct pollfd){fd, POLLIN, 0};
    set[fd / 64] |= 1ul << fd % 64;
    highest = fd;
  }
  if (count < 4000) printf("only %d descriptors\n", count);
  sigset_t none;
  sigemptyset(&none);
  alarm(100); // instead of never
  const struct timespec short_time = {0, 3000000}, long_time = {2, 0};
  const char *names[] = {"poll at once", "poll", "ppoll", "ppoll under a mask", "select", "pselect under a mask"};
  for (int i = 0; i < 6 * rounds; i++) {
    int which = i % 6;
    struct timeval time = {0, 3000};
    double from = now();
    memcpy(now_set, set, sizeof set);
    fd_set *in = (void *)now_set;
    int result = which == 0   ? poll(all, count, 0)
                 : which == 1 ? poll(all, count, 3)
                 : which == 2 ? ppoll(all, count, &short_time, NULL)
                 : which == 3 ? ppoll(all, count, &short_time, &none)
                 : which == 4 ? select(highest + 1, in, NULL, NULL, &time)
                              : pselect(highest + 1, in, NULL, NULL, &short_time, &none);
    int error = errno;
    if (result) printf("%s: %d, errno %d\n", names[which], result, error);
    else if (which && now() - from < 2999) printf("%s: early\n", names[which]);
    if (which > 3) for (unsigned word = 0; word < sizeof set / sizeof *set; word++) if (now_set[word]) { printf("%s: a set that is not empty\n", names[which]); break; }
  }
  // Its own signal ends it, and is handled with nothing of ours blocked.
  struct sigaction action = {.sa_sigaction = alarmed, .sa_flags = SA_SIGINFO};
  sigaction(SIGUSR2, &action, NULL);
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  for (int i = 0; i < 2 * rounds; i++) {
    struct itimerspec when = {{0, 0}, {0, 5000000 + i % 7 * 300000}}, never = {{0, 0}, {0, 0}};
    int error = EINTR, ended = 0;
    for (int time = 0; time < 50 && !ended; time++) { // until it comes in the call
      alarms = 0;
      timer_settime(timer, 0, &when, NULL);
      errno = 0;
      int result = i % 2 ? poll(all, count, 2000) : ppoll(all, count, &long_time, &none);
      error = errno;
      timer_settime(timer, 0, &never, NULL);
      if (alarms != 1 || in_call) ended = result == -1 ? 1 : 2;
    }
    if (ended != 1 || error != EINTR || alarms != 1) printf("own: %d, errno %d, %d signals\n", ended, error, alarms);
  }
  if (blocked) printf("blocked in %d handlers\n", blocked);
}

static void elsewhere(int rounds) {
  int other = 0;
  for (int n = 0; n < rounds; n++) {
    long result, number = SYS_poll;
    work(3000 + n * 37 % 3000);
    __asm__ volatile("mov %1, %%rax\n nop\n nop\n nop\n nop\n nop\n nop\n nop\n syscall"
                     : "=a"(result) : "r"(number), "D"(NULL), "S"(0), "d"(1) : "rcx", "r11", "memory");
    // Nobody knows which call it was: it is left as it is.
    if (result != 0 && result != -EINTR) other++;
  }
  printf("%d other\n", other);
}

int main(int count, char **arguments) {
  const char *way = arguments[1];
  int number = count > 2 ? atoi(arguments[2]) : 0;
  if (pipe(empty)) return 3;
  epoll = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(epoll, EPOLL_CTL_ADD, empty[0], &event);
  alarm_fd = timerfd_create(CLOCK_MONOTONIC, 0);
  epoll_alarm = epoll_create1(0);
  epoll_ctl(epoll_alarm, EPOLL_CTL_ADD, alarm_fd, &event);
  if (!strcmp(way, "storm")) storm(number);
  else if (!strcmp(way, "own")) own(number);
  else if (!strcmp(way, "pieces")) pieces(number);
  else if (!strcmp(way, "full")) full(number);
  else if (!strcmp(way, "many")) many(number);
  else if (!strcmp(way, "all")) { signal(SIGPIPE, SIG_IGN); all_of_it(number); }
  else if (!strcmp(way, "elsewhere")) elsewhere(number);
  else if (!strcmp(way, "passed")) passed();
  else if (count > 2) limited(number, ROUNDS_LIMITED);
  else {
    char fd[12];
    snprintf(fd, sizeof fd, "%d", socket_with_limit());
    execl(arguments[0], arguments[0], "limited", fd, (char *)NULL);
  }
  return 0;
}
