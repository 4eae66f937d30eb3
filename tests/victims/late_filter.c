// Puts a seccomp filter on after its start that kills for anything but what it does itself and the
// calls that docs/limits.md names. Then it makes calls that a signal can end and transfers that one can cut
// short: prints a line for each that was.
#define _GNU_SOURCE
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

int main(void) {
  int pipes[2], sockets[2], empty[2];
  if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || pipe(empty)) return 3;
  for (volatile long i = 0; i < 20000000; i++) {} // a few samples first
  drain(pipes[0]);
  drain(sockets[0]);
  int zero = open("/dev/zero", O_RDONLY);
  memset(big, 1, sizeof big);
  static const unsigned allowed[] = {SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_sendto, SYS_sendmsg, SYS_getrandom, SYS_poll, SYS_ppoll,
                                 SYS_clock_nanosleep, SYS_exit_group, SYS_rt_sigreturn,
                                 // the list of docs/limits.md: what a library that samples does in its program
                                 SYS_rt_sigprocmask, SYS_clock_gettime};
  struct sock_filter code[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  int size = 1;
  for (unsigned i = 0; i < sizeof allowed / sizeof *allowed; i++) {
    code[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
    code[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  code[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  struct sock_fprog program = {size, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) { perror("seccomp"); return 3; }
  struct iovec pieces[3] = {{big, BIG / 2}, {big, 1000}, {big, BIG / 4}};
  long of_pieces = BIG / 2 + 1000 + BIG / 4;
  struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
  struct timespec nap = {0, 200000};
  struct pollfd nothing = {empty[0], POLLIN, 0};
  for (int i = 0; i < 12; i++) {
    check("write", write(pipes[1], big, BIG), BIG);
    check("writev", writev(pipes[1], pieces, 3), of_pieces);
    check("send", send(sockets[1], big, BIG, 0), BIG);
    check("sendmsg", sendmsg(sockets[1], &message, 0), of_pieces);
    check("getrandom", getrandom(big, BIG, 0), BIG);
    for (int n = 0; n < 40; n++) check("read", read(zero, big, MIDDLE), MIDDLE);
    for (int n = 0; n < 20; n++) {
      check("poll", poll(&nothing, 1, 1), 0);
      check("ppoll", ppoll(&nothing, 1, &nap, NULL), 0);
      check("nanosleep", nanosleep(&nap, NULL), 0);
    }
  }
  long said = write(1, text, length);
  (void)said;
  _exit(0);
}
