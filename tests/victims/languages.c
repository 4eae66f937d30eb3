/* A toy interpreter, whose frames the profiler asks for in every way that rsunwind.h offers.
 *   languages HOW [MILLISECONDS OF CPU TIME]
 * The stack is always
 *   main, outer (a.toy:10), middle (a.toy:22), sort, inner (b.toy:33), work
 * where outer and middle share one native frame of the interpreter's, toy_enter, which has no
 * unwind tables. Prints "right", or what is wrong. */
#define _GNU_SOURCE
#define RSUNWIND_OPTIONAL
#include "rsunwind.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int bad;

/* EXPECT in a callback, which may not print: the line is for the end. */
static volatile int bad_line;
#define CHECK(condition) ((condition) ? (void)0 : (void)(bad++, bad_line = __LINE__))
#define EXPECT(condition)                                                                  \
    do {                                                                                   \
        if (!(condition))                                                                  \
            bad++, fprintf(stderr, "%s:%d: not %s\n", __func__, __LINE__, #condition);      \
    } while (0)

/* ---- the interpreter ---- */

struct toy_code {
    const char *name, *file;
    uint32_t first_line;
};

struct toy_frame {
    struct toy_frame *previous; /* null in an entry's first */
    const struct toy_code *code;
    uint32_t position;
};

/* One for each native frame of the interpreter's, and inside of it. */
struct toy_entry {
    struct toy_entry *outer;
    struct toy_frame *top;
};

static __thread struct toy_entry *volatile innermost;

/* Calls `body` with the entry in rbx; keeps rbp, but has no tables. */
void toy_enter(struct toy_entry *entry, void (*body)(struct toy_entry *));
extern const char toy_enter_body[], toy_enter_return[], toy_enter_end[];
__asm__(".text\n"
        ".globl toy_enter, toy_enter_return, toy_enter_end\n"
        "toy_enter: push %rbp; mov %rsp, %rbp; push %rbx; sub $40, %rsp\n"
        "mov (%rdi), %rax; mov %rax, 8(%rsp); mov 8(%rdi), %rax; mov %rax, 16(%rsp)\n" /* a copy of the entry, in this frame */
        "lea 8(%rsp), %rbx; mov %rbx, %rdi; call *%rsi\n"
        "toy_enter_return: add $40, %rsp; pop %rbx; pop %rbp; ret\n"
        "toy_enter_end:\n");

/* CPU time of the process, so that a busy machine makes no difference; seconds. */
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static volatile uint64_t sink;
static double until;
static volatile int stopping;

__attribute__((noinline)) static void work(void) {
    while (now() < until && !stopping)
        for (int i = 0; i < 20000; i++)
            sink += i;
}

static const struct toy_code OUTER = {"outer", "a.toy", 1}, MIDDLE = {"middle", "a.toy", 20}, INNER = {"Class.inner", "b.toy", 30};

static void run_inner(struct toy_entry *entry) {
    struct toy_entry *before = innermost;
    innermost = entry;
    work();
    innermost = before;
}

__attribute__((noinline)) static void sort(void) {
    struct toy_frame inner = {NULL, &INNER, 3};
    struct toy_entry entry = {innermost, &inner};
    toy_enter(&entry, run_inner);
    sink++;
}

static void run_outer(struct toy_entry *entry) {
    struct toy_entry *before = innermost;
    innermost = entry;
    sort();
    innermost = before;
}

__attribute__((noinline)) static void run_toy(void) {
    struct toy_frame outer = {NULL, &OUTER, 9}, middle = {&outer, &MIDDLE, 2};
    struct toy_entry entry = {NULL, &middle};
    toy_enter(&entry, run_outer);
    sink++;
}

/* ---- what it tells the profiler ---- */

enum how { ENTRY, CALLER, NATIVE, END, NOBODY, UNREADABLE, BACKWARDS, SLOW, ENDLESS, MISSING, NONSENSE, DEMANDING };
static enum how how;

struct state {
    uint64_t asked, last_sp;
};

static void frames(struct rsunwind_cursor *cursor, uint64_t top) {
    for (int depth = 0; top && depth < 100; depth++) {
        struct toy_frame frame;
        if (rsunwind_copy(cursor, top, &frame, sizeof frame)) return;
        if (rsunwind_frame(cursor, (uint64_t)frame.code, frame.code->first_line, frame.position) == 1) {
            static const struct rsunwind_line lines[] = {{1, 0}, {2, 0}, {3, 0}, {9, 0}};
            struct rsunwind_line own[4];
            for (int i = 0; i < 4; i++) own[i].position = lines[i].position, own[i].line = frame.code->first_line + lines[i].position;
            struct rsunwind_code code = {sizeof code, frame.code->name, strlen(frame.code->name), frame.code->file,
                                         strlen(frame.code->file), own, 4, frame.code->first_line, 0};
            EXPECT(rsunwind_describe(cursor, &code) == 0);
            EXPECT(rsunwind_describe(cursor, &code) == RSUNWIND_E_NULL);
        }
        top = (uint64_t)frame.previous;
    }
}

/* The walk is seen from the inside out, each time with a state that was zeroed. */
static void check(struct rsunwind_cursor *cursor) {
    struct state *state = cursor->state;
    CHECK((state->asked == 0) == (state->last_sp == 0));
    CHECK(cursor->registers[7] > state->last_sp);
    state->asked++;
    state->last_sp = cursor->registers[7];
    CHECK((cursor->known & 1 << 7) && cursor->interrupted && cursor->interrupted->pc != 0);
    CHECK(cursor->interrupted->general[7] <= cursor->registers[7]);
    CHECK(!(cursor->flags & RSUNWIND_CURSOR_EXACT) || cursor->interrupted->pc == cursor->pc);
}

static uint64_t entry_of(struct rsunwind_cursor *cursor, void *data) {
    (void)data;
    struct state *state = cursor->state;
    CHECK(!state->asked && !state->last_sp && rsunwind_frame(cursor, 1, 1, 1) == RSUNWIND_E_NULL);
    if (how == MISSING) return 0x10; /* below every stack */
    return (uint64_t)innermost;
}

static int by_entry(struct rsunwind_cursor *cursor) {
    struct toy_entry entry;
    if (cursor->flags & RSUNWIND_CURSOR_REST) {
        CHECK(how == MISSING);
        frames(cursor, innermost ? (uint64_t)innermost->top : 0);
        return RSUNWIND_END;
    }
    CHECK(cursor->entry >= cursor->registers[7] && cursor->entry < cursor->cfa);
    if (rsunwind_copy(cursor, cursor->entry, &entry, sizeof entry)) return RSUNWIND_NATIVE;
    frames(cursor, (uint64_t)entry.top);
    cursor->entry = (uint64_t)entry.outer;
    return RSUNWIND_NATIVE;
}

static int ask(struct rsunwind_cursor *cursor, void *data) {
    uint64_t word, top, outer;
    EXPECT(data == &bad);
    check(cursor);
    switch (how) {
    case ENTRY:
    case MISSING: return by_entry(cursor);
    case NOBODY: return RSUNWIND_NOT_MINE;
    case UNREADABLE:
        EXPECT(rsunwind_load(cursor, 8, &word) == RSUNWIND_E_UNREADABLE);
        EXPECT(rsunwind_copy(cursor, 8, &word, 8) == RSUNWIND_E_UNREADABLE);
        return RSUNWIND_NOT_MINE;
    case BACKWARDS: return RSUNWIND_CALLER; /* the frame itself */
    case SLOW:
        for (double end = now() + 0.003; now() < end;) sink++;
        return RSUNWIND_NOT_MINE;
    case ENDLESS:
        while (rsunwind_load(cursor, (uint64_t)&sink, &word) == 0) sink++;
        return RSUNWIND_NOT_MINE;
    case NONSENSE: return 12345;
    case DEMANDING: return RSUNWIND_NEED(0); /* which no call preserves */
    default: break;
    }
    /* By code: where the interpreter's own instructions are interrupted, its entry may not be there
     * yet. */
    if (cursor->flags & RSUNWIND_CURSOR_EXACT) return RSUNWIND_NOT_MINE;
    CHECK(cursor->pc == (uint64_t)toy_enter_return);
    if (!(cursor->known & 1 << 3)) {
        CHECK(!(cursor->flags & RSUNWIND_CURSOR_LAST));
        return RSUNWIND_NEED(3);
    }
    uint64_t entry = cursor->registers[3], fp = cursor->registers[6];
    if (rsunwind_load(cursor, entry + 8, &top) || rsunwind_load(cursor, entry, &outer)) return RSUNWIND_NOT_MINE;
    frames(cursor, top);
    if (how == NATIVE) return RSUNWIND_NATIVE;
    if (how == END && outer == 0) return RSUNWIND_END;
    if (rsunwind_load(cursor, fp + 8, &cursor->pc) || rsunwind_load(cursor, fp - 8, &cursor->registers[3]) ||
        rsunwind_load(cursor, fp, &cursor->registers[6]))
        return RSUNWIND_NOT_MINE;
    cursor->registers[7] = fp + 16;
    cursor->known = 1 << 3 | 1 << 6 | 1 << 7;
    return RSUNWIND_CALLER;
}

static int add(const char *name) {
    int by_address = how == ENTRY || how == MISSING;
    struct rsunwind_language toy = {sizeof toy, name, ask, by_address ? entry_of : NULL, (void *)&bad};
    int language = rsunwind_language_add(&toy);
    EXPECT(language > 0);
    if (!by_address)
        EXPECT(rsunwind_language_cover(language, (void *)toy_enter, toy_enter_end - (const char *)toy_enter) == 0);
    return language;
}

static uint64_t below_every_stack(struct rsunwind_cursor *cursor, void *data) {
    (void)cursor, (void)data;
    return 0x10;
}

static int has_no_frames(struct rsunwind_cursor *cursor, void *data) {
    (void)cursor, (void)data;
    return RSUNWIND_END;
}

static void rules(void) {
    struct rsunwind_language toy = {sizeof toy, "toy", ask, NULL, NULL}, wrong = toy;
    EXPECT(rsunwind_language_add(NULL) == RSUNWIND_E_NULL);
    wrong.size--;
    EXPECT(rsunwind_language_add(&wrong) == RSUNWIND_E_NULL);
    static const char *const names[] = {"", "a b", "a;b", "a[b", "0123456789012345678901234567890123456789", "a\n"};
    for (int i = 0; i < 6; i++) {
        wrong = toy;
        wrong.name = names[i];
        EXPECT(rsunwind_language_add(&wrong) == RSUNWIND_E_NULL);
    }
    wrong = toy, wrong.callback = NULL;
    EXPECT(rsunwind_language_add(&wrong) == RSUNWIND_E_NULL);
    int all[RSUNWIND_LANGUAGES];
    for (int i = 0; i < RSUNWIND_LANGUAGES; i++) EXPECT((all[i] = rsunwind_language_add(&toy)) > 0);
    EXPECT(rsunwind_language_add(&toy) == RSUNWIND_E_FULL);
    for (int i = 0; i < RSUNWIND_RANGES; i++) EXPECT(rsunwind_language_cover(all[i % 16], (char *)4096 + i * 16, 16) == 0);
    EXPECT(rsunwind_language_cover(all[0], (void *)8, 8) == RSUNWIND_E_FULL);
    EXPECT(rsunwind_language_uncover(all[0], (char *)4096 + 16, 16) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_language_uncover(all[1], (char *)4096 + 16, 16) == 0);
    EXPECT(rsunwind_language_cover(all[0], (void *)8, 8) == 0);
    EXPECT(rsunwind_language_cover(all[0], (void *)8, 0) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_language_cover(all[0], (void *)8, SIZE_MAX) == RSUNWIND_E_NULL);
    for (int i = 0; i < RSUNWIND_LANGUAGES; i++) EXPECT(rsunwind_language_remove(all[i]) == 0);
    EXPECT(rsunwind_language_remove(all[3]) == RSUNWIND_E_NO_CLIENT);
    EXPECT(rsunwind_language_cover(all[3], (void *)8, 8) == RSUNWIND_E_NO_CLIENT);
    struct rsunwind_language_counts counts;
    EXPECT(rsunwind_language_counts(all[3], &counts) == RSUNWIND_E_NO_CLIENT);
    int last = rsunwind_language_add(&toy);
    EXPECT(last > 0 && last != all[0]);
    EXPECT(rsunwind_language_counts(last, NULL) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_language_counts(last, &counts) == 0 && counts.asked == 0);
    EXPECT(rsunwind_language_remove(last) == 0);
    uint64_t word;
    struct rsunwind_cursor cursor;
    memset(&cursor, 0, sizeof cursor);
    EXPECT(rsunwind_load(&cursor, 8, &word) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_frame(NULL, 8, 8, 8) == RSUNWIND_E_NULL);
}

static void *run_thread(void *data) {
    (void)data;
    run_toy();
    return NULL;
}

static volatile int in_callback;
static void leave(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    (void)nonce;
    in_callback = rsunwind_language_remove(*(int *)data);
    int found = 0;
    for (size_t i = 0; i < stack->count; i++) found += stack->frames[i].method == RSUNWIND_LANGUAGE;
    CHECK(found == 0); /* asked outside of the interpreter */
}

/* ---- code of a JIT ---- */

#define FUNCTIONS 100000
#define EACH 32
static char *made;

/* push rbx; sub rsp, 64; call rdi; add rsp, 64; pop rbx; ret: no frame pointer, no tables. */
static const unsigned char machine_code[] = {0x53, 0x48, 0x83, 0xec, 0x40, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x40, 0x5b, 0xc3};
static const struct rsunwind_jit_rule rules_of_code[] = {
    {0, 8, {0}, 7, 0}, {1, 16, {0, -16}, 7, 0}, {5, 80, {0, -16}, 7, 0}, {11, 16, {0, -16}, 7, 0}, {12, 8, {0}, 7, 0}};

static int make(int i, const char *name, size_t rule_count) {
    char text[64];
    int length = snprintf(text, sizeof text, name, i);
    struct rsunwind_line lines[] = {{0, 100}, {5, 200 + i % 10}, {7, 300}};
    struct rsunwind_code code = {sizeof code, text, length, "made.jit", 8, lines, 3, 100, 0};
    struct rsunwind_jit_code jit = {sizeof jit, made + i * EACH, sizeof machine_code, "jit", &code, rules_of_code, rule_count};
    return rsunwind_jit_add(&jit);
}

static void call(int i, void (*body)(void)) { ((void (*)(void (*)(void)))(void *)(made + i * EACH))(body); }

__attribute__((noinline)) static void work_odd(void) {
    for (int i = 0; i < 20000; i++) sink += i;
}
__attribute__((noinline)) static void work_even(void) {
    for (int i = 0; i < 20000; i++) sink -= i;
}
__attribute__((noinline)) static void second(void) {
    call(5, work);
    sink++;
}

static void make_all(void) {
    made = mmap(NULL, FUNCTIONS * EACH, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < FUNCTIONS; i++) memcpy(made + i * EACH, machine_code, sizeof machine_code);
    for (int i = 0; i < FUNCTIONS; i++) EXPECT(make(i, "function %d", 5) == 0);
}

static void jit(void) {
    make_all();
    for (int i = 0; i < FUNCTIONS; i += 2) EXPECT(rsunwind_jit_remove(made + i * EACH) == 0);
    for (int i = 0; i < FUNCTIONS; i += 2) EXPECT(make(i, "again %d", 5) == 0);
    /* What is wrong is refused. */
    EXPECT(make(7, "overlaps", 5) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_jit_remove(made + 7 * EACH + 1) == RSUNWIND_E_NO_CLIENT);
    EXPECT(rsunwind_jit_remove(made - 4096) == RSUNWIND_E_NO_CLIENT);
    EXPECT(rsunwind_jit_add(NULL) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_jit_remove(made + 7 * EACH) == 0);
    struct rsunwind_code code = {sizeof code, "f", 1, NULL, 0, NULL, 0, 0, 0};
    struct rsunwind_jit_rule rule = rules_of_code[0], wrong[] = {{5, 8, {0}, 7, 0}, {1, 8, {0}, 7, 0}};
    struct rsunwind_jit_code good = {sizeof good, made + 7 * EACH, 8, "jit", &code, &rule, 1}, bad_code = good;
    bad_code.length = 0;
    EXPECT(rsunwind_jit_add(&bad_code) == RSUNWIND_E_NULL);
    bad_code = good, bad_code.rules = wrong, bad_code.rule_count = 2;
    EXPECT(rsunwind_jit_add(&bad_code) == RSUNWIND_E_NULL);
    bad_code = good, bad_code.language = "a b";
    EXPECT(rsunwind_jit_add(&bad_code) == RSUNWIND_E_NULL);
    rule.cfa_register = 3;
    EXPECT(rsunwind_jit_add(&good) == RSUNWIND_E_NULL);
    rule.cfa_register = 7, rule.saved[0] = -2000;
    EXPECT(rsunwind_jit_add(&good) == RSUNWIND_E_NULL);
    rule.saved[0] = 0;
    EXPECT(rsunwind_jit_add(&good) == 0);
    until = now() + 0.2;
    call(70000, second);
    pid_t child = fork();
    until = now() + 0.2;
    call(70000, second);
    if (child == 0) _exit(bad != 0);
    int status;
    waitpid(child, &status, 0);
    EXPECT(status == 0);
}

static void *call_made(void *data) {
    call(*(int *)data, work);
    return NULL;
}

/* The code at one place changes its name all the time, and what it calls with it, while other
 * threads are in code around it. */
static void jit_storm(void) {
    make_all();
    until = now() + 1.5;
    pthread_t threads[4];
    static int which[4] = {1, 3, 30001, 99999};
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, call_made, &which[i]);
    double end = until;
    for (int round = 0; now() < end; round++) {
        for (int i = 10; i < 200; i += 2) EXPECT(rsunwind_jit_remove(made + i * EACH) == 0);
        for (int i = 10; i < 200; i += 2) EXPECT(make(i, round % 2 ? "odd" : "even", 5) == 0);
        double own = now() + 0.003;
        while (now() < own) call(100, round % 2 ? work_odd : work_even);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

/* Languages that come and go while threads are sampled, and children that go on with them. */
static void storm(void) {
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], NULL, run_thread, NULL);
    for (int round = 0; now() < until; round++) {
        how = round % 2 ? ENTRY : CALLER;
        int language = add("toy");
        usleep(500);
        if (round % 50 == 7) {
            pid_t child = fork();
            if (child == 0) {
                EXPECT(rsunwind_language_remove(language) == 0);
                how = ENTRY;
                add("toy");
                until = now() + 0.02;
                run_toy();
                if (bad_line) fprintf(stderr, "in a child: line %d\n", bad_line);
                _exit(bad ? 3 : 0);
            }
            int status;
            waitpid(child, &status, 0);
            EXPECT(status == 0);
        }
        EXPECT(rsunwind_language_remove(language) == 0);
    }
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
}

static __thread sigjmp_buf back;
static __thread volatile int leaving; /* this thread's next walk is to be left */
static volatile int left;

static void jump_back(int signal) {
    left++;
    siglongjmp(back, signal);
}

static uint64_t leave_once(struct rsunwind_cursor *cursor, void *data) {
    if (!leaving) return 0;
    leaving = 0;
    return *(volatile int *)data;
}

static void *leave_a_callback(void *volatile argument) {
    if (sigsetjmp(back, 1) == 0) {
        leaving = 1;
        for (;;) sink++;
    }
    if (argument) work();
    return NULL;
}

/* Callbacks that a fault and siglongjmp leave for good, on this thread and on another. */
static void leave_callbacks(void) {
    struct sigaction action = {.sa_handler = jump_back};
    sigaction(SIGSEGV, &action, NULL);
    struct rsunwind_language language = {sizeof language, "left", has_no_frames, leave_once, NULL};
    int number = rsunwind_language_add(&language);
    leave_a_callback(NULL);
    EXPECT(left == 1 && rsunwind_language_remove(number) == 0);
    number = rsunwind_language_add(&language);
    until = 1e9;
    pthread_t other;
    pthread_create(&other, NULL, leave_a_callback, &other);
    while (left < 2) sched_yield();
    int result;
    do
        result = rsunwind_language_remove(number);
    while (result == RSUNWIND_E_STILL_RUNS); /* until it has been sampled again */
    EXPECT(result == 0);
    stopping = 1;
    pthread_join(other, NULL);
}

int main(int count, char **arguments) {
    static const char *const names[] = {"entry", "caller", "native", "end",    "nobody",   "unreadable",
                                        "backwards", "slow", "endless", "missing", "nonsense", "demanding"};
    if (!rsunwind_language_add) return puts("absent"), 0;
    const char *wanted = count > 1 ? arguments[1] : "entry";
    until = now() + (count > 2 ? atoi(arguments[2]) : 300) * 1e-3;
    if (strcmp(wanted, "rules") == 0) {
        rules();
    } else if (strcmp(wanted, "storm") == 0) {
        storm();
    } else if (strcmp(wanted, "left") == 0) {
        leave_callbacks();
    } else if (strcmp(wanted, "jit") == 0) {
        jit();
    } else if (strcmp(wanted, "jit_storm") == 0) {
        jit_storm();
    } else if (strcmp(wanted, "killed") == 0) {
        add("toy");
        run_toy();
        kill(getpid(), SIGKILL);
    } else if (strcmp(wanted, "forked") == 0) {
        add("toy");
        run_toy();
        pid_t child = fork();
        until = now() + 0.3;
        run_toy();
        if (child == 0) _exit(bad != 0);
        int status;
        waitpid(child, &status, 0);
        EXPECT(status == 0);
    } else if (strcmp(wanted, "client") == 0) {
        int language = add("toy"), client = rsunwind_register(leave, &language);
        EXPECT(client > 0 && rsunwind_request(client, NULL) == 0);
        EXPECT(in_callback == RSUNWIND_E_IN_CALLBACK);
        EXPECT(rsunwind_language_remove(language) == 0);
    } else {
        for (int i = 0; i < 12; i++)
            if (strcmp(wanted, names[i]) == 0) how = i;
        struct rsunwind_language stray = {sizeof stray, "stray", has_no_frames, below_every_stack, NULL};
        if (strcmp(wanted, "neighbour") == 0) EXPECT(rsunwind_language_add(&stray) > 0);
        int language = add("toy");
        run_toy();
        struct rsunwind_language_counts counts;
        EXPECT(rsunwind_language_counts(language, &counts) == 0);
        printf("asked %lu frames %lu troubled %lu off %lu\n", counts.asked, counts.frames, counts.troubled, counts.is_off);
        EXPECT(rsunwind_language_remove(language) == 0);
    }
    if (bad_line) printf("line %d: ", bad_line);
    puts(bad ? "wrong" : "right");
    return bad != 0;
}
