/* Children that are waited for in ways of which no function of libc's tells, or by nobody. Prints
 * the pid of each process that nobody waits for, with what its own clock showed right before its
 * end, ns. Usage: families WAY */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN = 3 };
static volatile unsigned long turns;
static const char *self;

static long long used(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void work(int ms) {
    long long until = used(CLOCK_PROCESS_CPUTIME_ID) + ms * 1000000ll;
    while (used(CLOCK_PROCESS_CPUTIME_ID) < until) turns++;
    mmap(0, 100 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

// Whether somebody will wait for it is known to who made it.
static void end(int is_waited_for) {
    work(60);
    if (!is_waited_for) dprintf(1, "%d %lld\n", getpid(), used(CLOCK_PROCESS_CPUTIME_ID));
    _exit(0);
}

static void *by_system(void *unused) {
    char command[4200];
    snprintf(command, sizeof command, "'%s' work", self);
    if (system(command)) abort();
    return unused;
}

static void wait_without_libc(pid_t child) {
    int status;
    long result;
    register long usage asm("r10") = 0;
    asm volatile("syscall" : "=a"(result) : "a"(SYS_wait4), "D"(child), "S"(&status), "d"(0), "r"(usage) : "rcx", "r11", "memory");
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    const char *way = arguments[1];
    self = arguments[0];
    if (!strcmp(way, "work")) { work(60); return 0; }
    int ignored = !strcmp(way, "ignored"), orphans = !strcmp(way, "orphans"), daemons = !strcmp(way, "daemons");
    int adopts = !strcmp(way, "subreaper");
    if (ignored) signal(SIGCHLD, SIG_IGN);
    if (adopts) prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!strcmp(way, "system")) {
        pthread_t threads[CHILDREN];
        for (int i = 0; i < CHILDREN; i++) pthread_create(threads + i, 0, by_system, 0);
        for (int i = 0; i < CHILDREN; i++) pthread_join(threads[i], 0);
        return 0;
    }
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0) {
            // A daemon forks twice, and the one between ends first.
            if ((daemons || adopts) && fork()) _exit(0);
            end(!ignored && !orphans && !daemons);
        }
        if (daemons) waitpid(child, 0, 0);
        if (!strcmp(way, "number")) syscall(SYS_wait4, child, 0, 0, 0);
        if (!strcmp(way, "instruction")) wait_without_libc(child);
        if (!strcmp(way, "pidfd")) {
            siginfo_t info;
            waitid(P_PIDFD, (id_t)syscall(SYS_pidfd_open, child, 0), &info, WEXITED);
        }
    }
    if (ignored || adopts) while (wait(0) > 0) {}
    return 0;
}
