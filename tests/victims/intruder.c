// Offers a perf ring of its own to a session in the name of another process: `intruder SESSION PID
// KEY`, the key in hexadecimal digits. Then it burns CPU time, which would be the other's. Exits
// with 3 where it may have no event, and offers something else.
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count < 4) return 2;
  struct perf_event_attr event = {.size = sizeof event, .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_TASK_CLOCK};
  event.sample_period = 1000000;
  event.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER;
  event.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  event.sample_regs_user = 1 << 6 | 1 << 7 | 1 << 8;
  event.exclude_kernel = 1;
  event.use_clockid = 1;
  event.clockid = CLOCK_MONOTONIC;
  int fd = (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, 0), refused = fd < 0;
  if (refused) fd = open("/dev/null", O_RDONLY);
  size_t data = 16 << 12;
  char *page = refused ? MAP_FAILED : mmap(NULL, 4096 + data, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) *(volatile uint64_t *)(page + 4096 - 8) = 1;

  uint32_t pid = (uint32_t)atoi(arguments[2]);
  uint64_t words[7 + 16] = {0}, key = strtoull(arguments[3], NULL, 16);
  memcpy(words, "RSRING02", 8);
  words[1] = pid | (uint64_t)pid << 32;
  words[2] = words[3] = key;
  words[5] = data;
  words[6] = 1;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/rings", arguments[1]);
  struct iovec vector = {words, sizeof words};
  char control[CMSG_SPACE(sizeof fd)] = {0};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  *rights = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
  memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  int to = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  if (connect(to, (struct sockaddr *)&address, sizeof address) != 0 || sendmsg(to, &message, 0) < 0) {
    perror("no offer");
    return 1;
  }
  clock_t end = clock() + CLOCKS_PER_SEC / 2;
  while (clock() < end) {}
  return refused ? 3 : 0;
}
