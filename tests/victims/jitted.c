// Runs code of no file, whose names stand in /tmp/perf-PID.map; a child has put that there, as the
// same user or as another. Prints the pid. jitted own|other|sparse
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char NAMES[] = "1000 7fffffffe000 made_up_\033]0;title\007\033[31m<script>\"'&\r\xe2\x80\xae\xff\n";

static int put_map(const char *how) {
  char path[64];
  sprintf(path, "/tmp/perf-%d.map", getppid());
  if (strcmp(how, "other") == 0 && setresuid(65534, 65534, 65534) != 0) return 2;
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (file < 0 || write(file, NAMES, sizeof NAMES - 1) != sizeof NAMES - 1) return 3;
  if (strcmp(how, "sparse") == 0 && ftruncate(file, 4LL << 40) != 0) return 4;
  return 0;
}

int main(int count, char **arguments) {
  (void)count;
  prctl(PR_SET_NAME, "\033[41mE<b>\"&\n");
  printf("%d\n", getpid());
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(put_map(arguments[1]));
  int status;
  waitpid(child, &status, 0);
  if (status != 0) return WEXITSTATUS(status);
  // push rbp; mov rbp, rsp; mov ecx, edi; 1: dec ecx; jnz 1b; pop rbp; ret
  static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x89, 0xf9, 0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3};
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  ((void (*)(int))page)(600000000);
  return 0;
}
