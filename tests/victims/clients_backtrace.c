/* rsunwind_backtrace beside glibc's backtrace: both called at the same place, they must give the
 * same addresses. Prints "right". */
#include "rsunwind.h"
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 700 };
static int bad;

static void compare(const char *where, int size) {
    int (*const functions[])(void **, int) = {backtrace, rsunwind_backtrace};
    void *found[2][ROOM];
    int count[2];
    memset(found, 0, sizeof found);
#pragma GCC unroll 1 /* one place calls both */
    for (volatile int i = 0; i < 2; i++)
        count[i] = functions[i](found[i], size);
    if (count[0] != count[1] || count[0] < (size < 3 ? size : 3) || memcmp(found[0], found[1], sizeof found[0]) != 0) {
        bad = 1;
        fprintf(stderr, "%s, %d: %d and %d frames\n", where, size, count[0], count[1]);
        for (int i = 0; i < 12; i++)
            fprintf(stderr, "  %p %p\n", found[0][i], found[1][i]);
    }
}

static int recurse(int depth, int size) {
    if (depth == 0) {
        compare("deep", size);
        return 0;
    }
    return 1 + recurse(depth - 1, size);
}

static void *thread(void *argument) {
    compare("thread", ROOM);
    return argument;
}

static int order(const void *a, const void *b) {
    static int once;
    if (once++ == 0)
        compare("called by libc", ROOM);
    return *(const int *)a - *(const int *)b;
}

static void on_signal(int signal) {
    (void)signal;
    compare("handler", ROOM);
}

static void callback(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    (void)nonce;
    /* In a callback the stack is the handler's: this must neither fail nor disturb what is shown.
     */
    uint64_t first = stack->frames[0].pc, last = stack->frames[stack->count - 1].pc;
    void *found[64];
    int *result = data;
    *result = rsunwind_backtrace(found, 64);
    if (stack->frames[0].pc != first || stack->frames[stack->count - 1].pc != last)
        bad = 1;
}

int main(void) {
    void *warm[4];
    backtrace(warm, 4); /* glibc loads its unwinder */
    compare("main", ROOM);
    for (int size = 0; size < 6; size++)
        compare("small", size);
    recurse(50, ROOM);
    recurse(600, ROOM);
    recurse(600, 100);
    recurse(5000, 700); /* deeper than what is kept of a stack */
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, order);
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    int frames = 0, client = rsunwind_register(callback, &frames);
    rsunwind_request(client, NULL);
    if (frames < 1)
        bad = 1, fprintf(stderr, "in a callback: %d\n", frames);
    if (!bad)
        puts("right");
    return bad;
}
