/* A program of the toy interpreter's. Its stack, for 0.2 s of CPU time, is
 *   main, outer (a.toy:10), between, inner (b.toy:33), work
 * with a toy_run for each frame of the interpreter's. It prints "done". -DLINKED: it tells of its
 * frames itself, and prints the result. */
#define _GNU_SOURCE
#ifdef LINKED
#include "toy_language.h"
#else
#include "toy.h"
#endif
#include <stdio.h>
#include <sys/auxv.h>
#include <time.h>

const struct toy_entry *volatile toy_innermost;

__attribute__((noinline)) static void toy_run(const struct toy_code *code, void (*body)(void)) {
    struct toy_entry entry = {toy_innermost, code};
    toy_innermost = &entry;
    body();
    toy_innermost = entry.outer;
}

static volatile uint64_t sink;

static void work(void) {
    struct timespec time;
    do {
        for (int i = 0; i < 20000; i++) sink += i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    } while (time.tv_sec * 1000 + time.tv_nsec / 1000000 < 200);
}

static const struct toy_code INNER = {"inner", "b.toy", 33}, OUTER = {"outer", "a.toy", 10};

static void between(void) {
    toy_run(&INNER, work);
    sink++;
}

int main(void) {
#ifdef LINKED
    struct rsunwind_language toy = {sizeof toy, "toy", toy_frames, toy_entry_of, (void *)&toy_innermost};
    struct rsunwind_language_counts counts;
    int language = rsunwind_language_add(&toy);
    toy_run(&OUTER, between);
    if (rsunwind_language_counts(language, &counts)) return 1;
    printf("frames: %s\n", counts.frames ? "asked for" : "none");
    return rsunwind_language_remove(language) != 0;
#endif
    toy_run(&OUTER, between);
    puts(getauxval(AT_SECURE) ? "done, with rights of its own" : "done");
    return 0;
}
