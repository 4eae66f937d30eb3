// Puts a seccomp filter on after its start that kills for anything but what it does itself, and
// makes calls that a signal can end, transfers that one can cut short, and deep calls: prints a
// line for each that went wrong. `late_filter HOW WORD…`: HOW is `prctl`, `number` (seccomp by
// syscall(2)), `bare` (by a system call of its own), or `none`. A WORD is the name of a call that
// is allowed, too (`return`, `mask`, `clock`, `futex`), or: `narrow`, no sendto and sendmsg;
// `twice`, a first filter that kills for some calls and allows all others; `counter`, the
// processor's counter is forbidden first; `start`, another program is started, under a filter that
// kills for timers.
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { BIG = 1 << 20, MIDDLE = 60000 };
static char big[BIG], text[4096];
static int length;
static int words;
static char **word;

static int is_said(const char *name) {
  for (int i = 0; i < words; i++)
    if (!strcmp(word[i], name)) return 1;
  return 0;
}

static void check(const char *what, long done, long asked) {
  if (done != asked && length < 4000) length += snprintf(text + length, 90, "%s: %ld of %ld, errno %d\n", what, done, asked, errno);
}

static void drain(int fd) {
  if (fork()) return;
  for (int other = 3; other < 1024; other++) if (other != fd) close(other);
  static char buffer[7000];
  while (read(fd, buffer, sizeof buffer) > 0) {}
  _exit(0);
}

// Where nothing was sampled before.
static long deep(int depth) {
  volatile char *room = alloca(4096);
  *room = 1;
  if (depth == 0) for (volatile long i = 0; i < 40000000; i++) {}
  return (depth ? deep(depth - 1) : 0) + *room;
}

static void put_on(const char *how, struct sock_fprog *program) {
  long result = 0;
  if (!strcmp(how, "prctl")) result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program);
  if (!strcmp(how, "number")) result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program);
  if (!strcmp(how, "bare"))
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_seccomp), "D"(SECCOMP_SET_MODE_FILTER), "S"(0), "d"(program) : "rcx", "r11", "memory");
  if (result) { perror("seccomp"); exit(3); }
}

int main(int count, char **arguments) {
  const char *how = arguments[1];
  words = count - 2;
  word = arguments + 2;
  int pipes[2], sockets[2], empty[2];
  if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || pipe(empty)) return 3;
  for (volatile long i = 0; i < 20000000; i++) {} // a few samples first
  drain(pipes[0]);
  drain(sockets[0]);
  int zero = open("/dev/zero", O_RDONLY);
  memset(big, 1, sizeof big);
  int is_narrow = is_said("narrow");
  unsigned allowed[32] = {SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_getrandom, SYS_poll, SYS_ppoll, SYS_clock_nanosleep, SYS_exit_group};
  int calls = 9;
  if (!is_narrow) allowed[calls++] = SYS_sendto, allowed[calls++] = SYS_sendmsg;
  if (is_said("return")) allowed[calls++] = SYS_rt_sigreturn;
  if (is_said("mask")) allowed[calls++] = SYS_rt_sigprocmask;
  if (is_said("clock")) allowed[calls++] = SYS_clock_gettime;
  if (is_said("futex")) allowed[calls++] = SYS_futex;
  struct sock_filter code[96] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  int size = 1;
  for (int i = 0; i < calls; i++) {
    code[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
    code[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  code[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  struct sock_fprog program = {size, code};
  struct sock_filter first_code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog first = {5, first_code};
  struct sock_filter timer_code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timer_create, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog timers = {4, timer_code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 3;
  // To see whether the kernel knows it, as programs do.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1 || errno != EFAULT) return 3;
  if (is_said("counter") && prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0)) return 3;
  if (is_said("start")) {
    put_on(how, &timers);
    execl("/bin/echo", "echo", "started", NULL);
    return 4;
  }
  if (is_said("twice")) put_on(how, &first);
  put_on(how, &program);
  struct iovec pieces[3] = {{big, BIG / 2}, {big, 1000}, {big, BIG / 4}};
  long of_pieces = BIG / 2 + 1000 + BIG / 4;
  struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
  struct timespec nap = {0, 200000};
  struct pollfd nothing = {empty[0], POLLIN, 0};
  for (int i = 0; i < 12; i++) {
    check("write", write(pipes[1], big, BIG), BIG);
    check("writev", writev(pipes[1], pieces, 3), of_pieces);
    check("write to a socket", write(sockets[1], big, BIG), BIG);
    check("writev to a socket", writev(sockets[1], pieces, 3), of_pieces);
    if (!is_narrow) {
      check("send", send(sockets[1], big, BIG, 0), BIG);
      check("sendmsg", sendmsg(sockets[1], &message, 0), of_pieces);
    }
    check("getrandom", getrandom(big, BIG, 0), BIG);
    for (int n = 0; n < 40; n++) check("read", read(zero, big, MIDDLE), MIDDLE);
    for (int n = 0; n < 20; n++) {
      check("poll", poll(&nothing, 1, 1), 0);
      check("ppoll", ppoll(&nothing, 1, &nap, NULL), 0);
      check("nanosleep", nanosleep(&nap, NULL), 0);
    }
  }
  check("deep", deep(100), 101);
  long said = write(1, text, length);
  (void)said;
  _exit(0);
}
