// Every way of calling that a walk over SFrame must cross, with few functions, so that any stack
// can be checked call by call:
//
//   main - run -+- walk - walk ... - leaf          frames of many sizes, alloca
//               +- (qsort in libc) - compare - leaf   a library without SFrame in between, and the
//               PLT +- (raise in libc) - on_signal - leaf   a signal frame
#include <alloca.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile long sink;

__attribute__((noinline)) static void leaf(int n) {
    for (int i = 0; i < n; i++)
        sink += i;
}

__attribute__((noinline)) static void walk(int depth) {
    char *room = alloca(16 + depth * 8);
    memset(room, depth, 16);
    if (depth > 0)
        walk(depth - 1);
    leaf(20 + room[3]);
}

__attribute__((noinline)) static int compare(const void *a, const void *b) {
    leaf(10);
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) static void on_signal(int signal) {
    (void)signal;
    leaf(300);
}

__attribute__((noinline)) static void run(void) {
    int numbers[64];
    walk(12);
    for (int i = 0; i < 64; i++)
        numbers[i] = (i * 37) % 64;
    qsort(numbers, 64, sizeof *numbers, compare);
    raise(SIGUSR1);
    sink += numbers[5];
}

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void) {
    signal(SIGUSR1, on_signal);
    while (cpu() < 1.0)
        for (int i = 0; i < 100; i++)
            run();
    return 0;
}
