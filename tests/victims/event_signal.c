/* A library to be preloaded: each thread has an event of its CPU time, EVENT_RATE times a second,
 * whose signal goes to a handler that does nothing. It is what a signal at that rate costs a
 * program, whoever asks for it and whatever is done then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGES = 8 };

static __thread struct perf_event_mmap_page *ring;

static void nothing(int signal) {
    (void)signal;
    if (ring) ring->data_tail = ring->data_head;
}

static void arm(void) {
    const char *rate = getenv("EVENT_RATE");
    if (!rate) return;
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_TASK_CLOCK,
        .size = sizeof attr,
        .sample_period = 1000000000 / strtoul(rate, NULL, 10),
        .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN,
        .exclude_callchain_user = 1,
        .wakeup_events = 1,
    };
    long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0) _exit(124);
    size_t length = (PAGES + 1) * (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) _exit(124);
    ring = memory;
    struct f_owner_ex self = { F_OWNER_TID, (pid_t)syscall(SYS_gettid) };
    fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK);
    fcntl(fd, F_SETSIG, SIGURG);
    fcntl(fd, F_SETOWN_EX, &self);
}

struct start {
    void *(*routine)(void *);
    void *argument;
};

static void *begin(void *memory) {
    struct start start = *(struct start *)memory;
    free(memory);
    arm();
    return start.routine(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = malloc(sizeof *start);
    *start = (struct start){ routine, argument };
    return next(thread, attributes, begin, start);
}

__attribute__((constructor)) static void begin_program(void) {
    struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_RESTART | SA_ONSTACK };
    sigaction(SIGURG, &action, NULL);
    arm();
}
