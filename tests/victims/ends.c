/* Ends in the way asked for, with MEGABYTES mapped and touched, so that the end takes a while; or
 * costs time in ways that are no end. Its parent waits and prints: the child's pid, what the
 * kernel charged it to its end, and what its own clock showed right before, ns. Usage: ends WAY
 * MEGABYTES */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long turns;

static long long clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void spin(int ms) {
    long long until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000ll;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until) turns++;
}

static int raw(void *argument) {
    for (unsigned long i = 0; i < 100000000; i++) turns += i;
    return 0;
}

static void *idle(void *argument) { return argument; }

static int end(const char *way, int megabytes, long long *seen) {
    if (!strcmp(way, "threads")) {
        for (int i = 0; i < 200; i++) {
            pthread_t thread;
            if (!pthread_create(&thread, 0, idle, 0)) pthread_join(thread, 0);
        }
    }
    spin(60);
    char *big = mmap(0, (size_t)megabytes << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (big == MAP_FAILED) return 1;
    *seen = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (!strcmp(way, "exit")) exit(0);
    if (!strcmp(way, "_exit")) _exit(0);
    if (!strcmp(way, "quick_exit")) quick_exit(0);
    if (!strcmp(way, "exit_group")) syscall(SYS_exit_group, 0);
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(way, "term")) raise(SIGTERM);
    if (!strcmp(way, "exec")) execl("/bin/true", "true", (char *)0);
    if (!strcmp(way, "raw_exec")) {
        char *arguments[] = {"true", 0};
        syscall(SYS_execve, "/bin/true", arguments, environ);
    }
    return 0;
}

int main(int count, char **arguments) {
    const char *way = arguments[1];
    int megabytes = atoi(arguments[2]);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); // huge pages are given back in a moment
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    long long *seen = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child;
    if (!strcmp(way, "raw_clone")) {
        char *stack = malloc(1 << 20);
        child = clone(raw, stack + (1 << 20), CLONE_VM | SIGCHLD, 0);
    } else {
        child = fork();
        if (child == 0) return end(way, megabytes, seen);
    }
    struct rusage usage;
    int status;
    if (wait4(child, &status, 0, &usage) != child) return 1;
    long long user = usage.ru_utime.tv_sec * 1000000ll + usage.ru_utime.tv_usec;
    long long system = usage.ru_stime.tv_sec * 1000000ll + usage.ru_stime.tv_usec;
    printf("%d %lld %lld\n", child, (user + system) * 1000, *seen);
    return 0;
}
