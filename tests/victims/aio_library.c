// Stands for libaio, as a library of that name: `io_getevents` gives minus errno, as there.
#define _GNU_SOURCE
#include "bare.h"
#include <sys/syscall.h>
static int plain(long result) { return result < 0 ? -errno : (int)result; }
int io_setup(int most, void **context) { return plain(bare(SYS_io_setup, most, context)); }
int io_getevents(void *context, long least, long most, void *events, void *timeout) {
  return plain(bare(SYS_io_getevents, context, least, most, events, timeout));
}
