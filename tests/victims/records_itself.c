/* An interpreter that is linked with librsunwind, which is not preloaded to it: its first thread
 * and a second one are each in work for 150 ms of CPU time, under main or worker, outer (a.toy:10),
 * between, inner (b.toy:33). A third one, which blocks every signal, works for 20 ms between waits
 * for signals of its own. With an argument it is the child that the other starts, and its first
 * thread alone works. It prints "TID NS" for each thread that works, the CPU time that it used, and
 * what any of them sees of us: calls that end early, signals that it did not send. */
#define _GNU_SOURCE
#include "toy_language.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const struct toy_entry *volatile toy_innermost; /* unused: by thread */
static _Thread_local const struct toy_entry *volatile innermost;

static uint64_t entry_of(struct rsunwind_cursor *cursor, void *data) {
    (void)data;
    return toy_entry_of(cursor, (void *)&innermost);
}

static uint64_t used(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static volatile uint64_t sink;

__attribute__((noinline)) static void work_until(uint64_t end) {
    while (used() < end)
        for (int i = 0; i < 20000; i++) sink += i;
}

__attribute__((noinline)) static void work(void) {
    for (uint64_t i = 1; i <= 15; i++) {
        work_until(i * 10000000);
        if (poll(NULL, 0, 1) < 0) puts("poll was interrupted");
    }
}

__attribute__((noinline)) static void toy_run(const struct toy_code *code, void (*body)(void)) {
    struct toy_entry entry = {innermost, code};
    innermost = &entry;
    body();
    innermost = entry.outer;
}

static const struct toy_code INNER = {"inner", "b.toy", 33}, OUTER = {"outer", "a.toy", 10};

__attribute__((noinline)) static void between(void) {
    toy_run(&INNER, work);
    sink++;
}

static void say(void) { printf("%ld %llu\n", syscall(SYS_gettid), (unsigned long long)used()); }

static void *worker(void *nothing) {
    toy_run(&OUTER, between);
    say();
    return nothing;
}

static void *blocks(void *nothing) {
    sigset_t all;
    struct timespec moment = {0, 1000000};
    sigfillset(&all);
    for (uint64_t i = 1; i <= 20; i++) {
        work_until(i * 1000000);
        int came = sigtimedwait(&all, NULL, &moment);
        if (came > 0 || errno != EAGAIN) printf("signal %d, errno %d\n", came, errno);
    }
    return nothing;
}

int main(int count, char **arguments) {
    struct rsunwind_language toy = {sizeof toy, "toy", toy_frames, entry_of, NULL};
    if (rsunwind_language_add(&toy) < 0) return 1;
    pthread_t works, waits;
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, NULL, &before);
    if (sigismember(&before, SIGURG)) puts("SIGURG is blocked");
    if (count == 1) {
        pthread_sigmask(SIG_SETMASK, &all, NULL);
        pthread_create(&waits, NULL, blocks, NULL); /* born with that mask */
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_create(&works, NULL, worker, NULL);
    }
    toy_run(&OUTER, between);
    say();
    if (count > 1) return 0;
    pthread_join(works, NULL);
    pthread_join(waits, NULL);
    fflush(stdout);
    if (vfork() == 0) {
        execl(arguments[0], arguments[0], "child", NULL);
        _exit(127);
    }
    int status;
    wait(&status);
    return WEXITSTATUS(status) ? 1 : 3;
}
