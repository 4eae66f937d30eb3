/* A program of the toy interpreter's. Its stack, for 0.2 s of CPU time, is
 *   main, outer (a.toy:10), between, inner (b.toy:33), work
 * with a toy_run for each frame of the interpreter's. It prints "done". -DLINKED: it tells of its
 * frames itself, and prints the result. -DNOTED: its file describes the language; with -DLINKED it
 * then asks for a stack, and prints how many frames are the language's. -DNOTE_SIZE=".."
 * -DNOTE="..": the size and the content of a note that is not good. -DLIBRARY: a plugin for
 * unload.c. */
#define _GNU_SOURCE
#if defined LINKED || defined NOTED
#include "toy_language.h"
#else
#include "toy.h"
#endif
#include <stdio.h>
#include <sys/auxv.h>
#include <time.h>

#ifdef LIBRARY
#define MILLISECONDS 2
#define CLOCK CLOCK_THREAD_CPUTIME_ID
/* By thread, without thread-local storage, which a library that is closed again and again would use
 * up. */
static struct {
    void *thread;
    const struct toy_entry *volatile innermost;
} slots[8];
static int slot_of(void *thread) {
    for (int i = 0; i < 8; i++)
        if (__atomic_load_n(&slots[i].thread, __ATOMIC_ACQUIRE) == thread) return i;
    return -1;
}
static uint64_t entry_of(struct rsunwind_cursor *cursor, void *data) {
    int slot = slot_of(__builtin_thread_pointer());
    (void)data;
    return slot < 0 ? 0 : toy_entry_of(cursor, (void *)&slots[slot].innermost);
}
#define innermost slots[slot_of(__builtin_thread_pointer())].innermost
#define DATA 0
#else
#define MILLISECONDS 200
#define CLOCK CLOCK_PROCESS_CPUTIME_ID
const struct toy_entry *volatile toy_innermost;
#define innermost toy_innermost
#define entry_of toy_entry_of
#define DATA (void *)&toy_innermost
#endif

#ifdef NOTED
RSUNWIND_LANGUAGE_NOTE(toy_noted, {sizeof(struct rsunwind_language), "toy", toy_frames, entry_of, DATA});
#endif
#ifdef NOTE
extern const uint64_t NUMBERS[5] __attribute__((visibility("hidden"))), ELSEWHERE[5] __attribute__((visibility("hidden")));
const uint64_t NUMBERS[5] = {7}, ELSEWHERE[5] = {40, (uint64_t)"toy", 8, 8, 0};
__asm__(".pushsection .note.rsunwind, \"a\", @note\n .balign 4\n .long 9, " NOTE_SIZE ", 1\n .asciz \"rsunwind\"\n .balign 4\n" NOTE "\n.popsection");
#endif

__attribute__((noinline)) static void toy_run(const struct toy_code *code, void (*body)(void)) {
    struct toy_entry entry = {innermost, code};
    innermost = &entry;
    body();
    innermost = entry.outer;
}

static volatile uint64_t sink;

static uint64_t milliseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

#if defined LINKED && defined NOTED
static int client;
#endif

__attribute__((noinline)) static void work(void) {
    uint64_t end = milliseconds() + MILLISECONDS;
    do
        for (int i = 0; i < 20000; i++) sink += i;
    while (milliseconds() < end);
#if defined LINKED && defined NOTED
    rsunwind_request(client, NULL);
#endif
}

static const struct toy_code INNER = {"inner", "b.toy", 33}, OUTER = {"outer", "a.toy", 10};

__attribute__((noinline)) static void between(void) {
    toy_run(&INNER, work);
    sink++;
}

#ifdef LIBRARY
int answer(int number) {
    void *nobody = NULL;
    for (int slot = 0; !__atomic_compare_exchange_n(&slots[slot].thread, &nobody, __builtin_thread_pointer(), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED); nobody = NULL)
        slot = (slot + 1) % 8;
    toy_run(&OUTER, between);
    __atomic_store_n(&slots[slot_of(__builtin_thread_pointer())].thread, NULL, __ATOMIC_RELEASE);
    return 41 + number;
}
#else
#if defined LINKED && defined NOTED
static int frames;
static void seen(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    (void)nonce, (void)data;
    for (size_t i = 0; i < stack->count; i++) frames += stack->frames[i].method == RSUNWIND_LANGUAGE;
}
#endif

int main(void) {
#if defined LINKED && defined NOTED
    client = rsunwind_register(seen, NULL);
    toy_run(&OUTER, between);
    printf("frames: %d\n", frames);
    return 0;
#elif defined LINKED
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
#endif
