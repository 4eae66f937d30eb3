// A plug-in that brings a library which nobody else sees.
#include <stdio.h>
extern int io_setup(int most, void **context);
extern int io_getevents(void *context, long least, long most, void *events, void *timeout);
int run(void) {
  void *context = 0;
  struct { long s, ns; } soon = {0, 1000000};
  static char events[512];
  int made = io_setup(8, &context);
  int some = io_getevents(context, 1, 8, events, &soon);
  int none = io_getevents(0, 1, 8, events, &soon);
  printf("%d %d %d\n", made, some, none);
  return 0;
}
