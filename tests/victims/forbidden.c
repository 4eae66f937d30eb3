// Stands in front of what a signal handler must not call, counts the calls, and aborts the program
// when one comes from a stack that is not one of the thread's own: from our handler's. Preloaded
// beside the library under test; a thread is watched once it has said where its stack is.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);

static __thread char *low __attribute__((tls_model("initial-exec"))), *high __attribute__((tls_model("initial-exec")));
static long calls;

void my_stack_is(char *from, char *to) { low = from; high = to; }
long forbidden_calls(void) { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }

static void check(const char *name) {
  char here;
  if (!high) return;
  __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
  if (&here < low || &here >= high) {
    static const char text[] = "forbidden call in a handler: ";
    int length = 0;
    while (name[length]) length++;
    if (write(2, text, sizeof text - 1) + write(2, name, length) + write(2, "\n", 1) < 0) _exit(9);
    abort();
  }
}

void *malloc(size_t size) { check("malloc"); return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { check("calloc"); return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { check("realloc"); return __libc_realloc(old, size); }
void free(void *old) { check("free"); __libc_free(old); }

static int (*real_lock)(pthread_mutex_t *);
static int (*real_iterate)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
static int (*real_dladdr)(const void *, Dl_info *);
static __attribute__((constructor)) void find(void) {
  real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
  real_iterate = (int (*)(int (*)(struct dl_phdr_info *, size_t, void *), void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
  real_dladdr = (int (*)(const void *, Dl_info *))dlsym(RTLD_NEXT, "dladdr");
}
int pthread_mutex_lock(pthread_mutex_t *mutex) { check("pthread_mutex_lock"); if (!real_lock) find(); return real_lock(mutex); }
int dl_iterate_phdr(int (*each)(struct dl_phdr_info *, size_t, void *), void *data) { check("dl_iterate_phdr"); if (!real_iterate) find(); return real_iterate(each, data); }
int dladdr(const void *address, Dl_info *info) { check("dladdr"); if (!real_dladdr) find(); return real_dladdr(address, info); }
