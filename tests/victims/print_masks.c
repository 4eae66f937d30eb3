// Prints the signals that are blocked, ignored and handled where it begins. To be linked
// statically: nobody looks after it.
#include <stdio.h>
#include <string.h>
int main(void) {
  char line[256];
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (!strncmp(line, "Sig", 3) && strncmp(line, "SigQ", 4)) fputs(line, stdout);
  return status ? 0 : 1;
}
