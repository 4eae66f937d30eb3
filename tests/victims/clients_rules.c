/* The rules of the interface, one after the other. Prints what is wrong, or "right".
 * "recorded" as the argument: the program is, so that requests come by the signal, which can be
 * blocked. */
#define _GNU_SOURCE
#include "bare.h"
#include "rsunwind.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int bad;
#define EXPECT(condition)                                                                  \
    do {                                                                                   \
        if (!(condition))                                                                  \
            bad++, fprintf(stderr, "%s:%d: not %s\n", __func__, __LINE__, #condition);      \
    } while (0)

struct seen {
    int calls;
    uint64_t nonce;
    const struct rsunwind_frame *frames;
    size_t count;
    int ask_for, twice, leave; /* in the callback: request this client, twice; unregister this one */
    int result, result_again, result_leave;
    uint64_t nested;
};

static void note(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    struct seen *seen = data;
    seen->calls++;
    seen->nonce = nonce;
    seen->frames = stack->frames;
    seen->count = stack->count;
    errno = 77; /* must not be seen by whom it interrupted */
    if (seen->ask_for) {
        seen->result = rsunwind_request(seen->ask_for, &seen->nested);
        seen->result_again = rsunwind_request(seen->ask_for, NULL);
    }
    if (seen->leave)
        seen->result_leave = rsunwind_unregister(seen->leave);
}

static struct seen a, b, c;
static int client_a, client_b, client_c;

static void begin(void) {
    memset(&a, 0, sizeof a), memset(&b, 0, sizeof b), memset(&c, 0, sizeof c);
    EXPECT((client_a = rsunwind_register(note, &a)) > 0);
    EXPECT((client_b = rsunwind_register(note, &b)) > 0);
    EXPECT((client_c = rsunwind_register(note, &c)) > 0);
}

static void end(void) {
    EXPECT(rsunwind_unregister(client_a) == 0);
    EXPECT(rsunwind_unregister(client_b) == 0);
    EXPECT(rsunwind_unregister(client_c) == 0);
}

static void there_are_62(void) {
    int client[RSUNWIND_CLIENTS];
    for (int i = 0; i < RSUNWIND_CLIENTS; i++)
        EXPECT((client[i] = rsunwind_register(note, &a)) > 0);
    EXPECT(rsunwind_register(note, &a) == RSUNWIND_E_FULL);
    EXPECT(strstr(rsunwind_error(RSUNWIND_E_FULL), "62"));
    EXPECT(rsunwind_unregister(client[17]) == 0);
    EXPECT(rsunwind_unregister(client[17]) == RSUNWIND_E_NO_CLIENT);
    EXPECT(rsunwind_request(client[17], NULL) == RSUNWIND_E_NO_CLIENT);
    int again = rsunwind_register(note, &a);
    EXPECT(again > 0 && again != client[17]);
    EXPECT(rsunwind_request(client[17], NULL) == RSUNWIND_E_NO_CLIENT);
    client[17] = again;
    for (int i = 0; i < RSUNWIND_CLIENTS; i++)
        EXPECT(rsunwind_unregister(client[i]) == 0);
}

static void nonsense_is_refused(void) {
    EXPECT(rsunwind_register(NULL, NULL) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_counts(NULL) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_backtrace(NULL, 5) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_backtrace(NULL, 0) == 0);
    int numbers[] = {0, -1, 1, 62, 63, 64, 0x7fffffff, (int)0x80000000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        EXPECT(rsunwind_request(numbers[i], NULL) == RSUNWIND_E_NO_CLIENT);
        EXPECT(rsunwind_unregister(numbers[i]) == RSUNWIND_E_NO_CLIENT);
    }
    int client = rsunwind_register(note, &a), mixed[] = {client, 0};
    struct rsunwind_counts before, after;
    rsunwind_counts(&before);
    EXPECT(rsunwind_request_all(NULL, 1, NULL) == RSUNWIND_E_NULL && rsunwind_request_all(mixed, 0, NULL) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_request_all(mixed, RSUNWIND_CLIENTS + 1, NULL) == RSUNWIND_E_NULL);
    EXPECT(rsunwind_request_all(mixed, 2, NULL) == RSUNWIND_E_NO_CLIENT && rsunwind_request_later(0, NULL) == RSUNWIND_E_NO_CLIENT);
    EXPECT(rsunwind_nonce(NULL) == RSUNWIND_E_NULL);
    rsunwind_counts(&after);
    EXPECT(after.requests == before.requests && rsunwind_unregister(client) == 0);
    EXPECT(strcmp(rsunwind_error(0), "no error") == 0 && strcmp(rsunwind_error(-1), "unknown error") == 0);
}

static void each_request_is_an_entry_of_its_own(void) {
    begin();
    uint64_t first = 0, second = 0;
    errno = 5;
    EXPECT(rsunwind_request(client_a, &first) == 0 && first != 0);
    EXPECT(errno == 5);
    EXPECT(a.calls == 1 && a.nonce == first && b.calls == 0);
    EXPECT(rsunwind_request(client_a, &second) == 0 && second != 0 && second != first);
    EXPECT(a.calls == 2 && a.nonce == second);
    end();
}

static void callbacks_share_their_entry(void) {
    begin();
    a.ask_for = client_b, b.ask_for = client_c, c.ask_for = client_a, a.leave = client_b;
    struct rsunwind_counts before, after;
    rsunwind_counts(&before);
    uint64_t nonce = 0;
    EXPECT(rsunwind_request(client_a, &nonce) == 0);
    rsunwind_counts(&after);
    EXPECT(a.calls == 1 && b.calls == 1 && c.calls == 1);
    EXPECT(a.nonce == nonce && b.nonce == nonce && c.nonce == nonce);
    EXPECT(a.nested == nonce && b.nested == nonce && c.nested == nonce);
    EXPECT(a.result == 0 && a.result_again == 1 && b.result == 0 && c.result == 1);
    EXPECT(a.frames == b.frames && b.frames == c.frames && a.count == c.count && a.count > 3);
    EXPECT(a.result_leave == RSUNWIND_E_IN_CALLBACK && strstr(rsunwind_error(a.result_leave), "callback"));
    EXPECT(after.requests - before.requests == 3 && after.callbacks - before.callbacks == 3);
    EXPECT(after.entries - before.entries == 1 && after.unwinds - before.unwinds == 1);
    end();
}

/* What three clients are told that are asked in one handler, in one way or the other. */
static int way;
static uint64_t told[4];

static void asks_for_three(int signal) {
    (void)signal;
    if (way == 0) {
        int all[] = {client_a, client_b, client_c};
        EXPECT(rsunwind_nonce(&told[3]) == 0 && rsunwind_request_all(all, 3, &told[0]) == 0);
        told[1] = told[2] = told[0];
        return;
    }
    EXPECT(rsunwind_request_later(client_a, &told[0]) == 0);
    EXPECT(rsunwind_request_later(client_b, &told[1]) == 0);
    EXPECT(rsunwind_nonce(&told[3]) == 0);
    if (way == 1)
        EXPECT(rsunwind_request(client_c, &told[2]) == 0);
    else
        EXPECT(rsunwind_request_later(client_c, &told[2]) == 0 && rsunwind_answer() == 0);
}

static void who_asks_in_one_handler_shares_a_walk(void) {
    begin();
    struct sigaction action = {.sa_handler = asks_for_three};
    sigaction(SIGUSR1, &action, NULL);
    for (way = 0; way < 3; way++) {
        int tries = 0, alone = 0;
        /* A sample that comes in between answers what was asked before it. */
        for (; tries < 10000 && !alone; tries++) {
            struct rsunwind_counts before, after;
            a.calls = b.calls = c.calls = 0;
            rsunwind_counts(&before);
            raise(SIGUSR1);
            rsunwind_counts(&after);
            alone = after.entries - before.entries == 1;
            EXPECT(a.calls == 1 && b.calls == 1 && c.calls == 1);
            EXPECT(a.nonce == told[0] && b.nonce == told[1] && c.nonce == told[2]);
            EXPECT(after.requests - before.requests == 3 && after.callbacks - before.callbacks == 3);
            if (alone) {
                EXPECT(told[0] != 0 && told[0] == told[1] && told[1] == told[2] && told[2] == told[3]);
                EXPECT(after.unwinds - before.unwinds == 1 && a.frames == c.frames && a.count == c.count);
            }
        }
        EXPECT(alone);
    }
    EXPECT(rsunwind_answer() == 0 && a.calls + b.calls + c.calls == 3); /* nothing was left */
    end();
}

static void *ends_without_an_answer(void *argument) {
    EXPECT(rsunwind_request_later(client_a, argument) == 0);
    return NULL;
}

static void what_is_left_is_answered_when_the_thread_ends(void) {
    begin();
    uint64_t nonce = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, ends_without_an_answer, &nonce);
    pthread_join(thread, NULL);
    EXPECT(a.calls == 1 && a.nonce == nonce && nonce != 0);
    end();
}

static void a_client_may_ask_for_itself_only_once(void) {
    begin();
    a.ask_for = client_a;
    EXPECT(rsunwind_request(client_a, NULL) == 0);
    EXPECT(a.calls == 1 && a.result == 1 && a.nested == a.nonce);
    end();
}

static uint64_t in_handler;
static void on_signal(int signal) {
    (void)signal;
    EXPECT(rsunwind_request(client_a, &in_handler) == 0);
}

static void handlers_may_ask(void) {
    begin();
    /* Also on the smallest of alternate stacks. */
    stack_t small = {.ss_sp = malloc(8192), .ss_size = 8192};
    sigaltstack(&small, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    EXPECT(a.calls == 1 && a.nonce == in_handler && in_handler != 0);
    int crossed = 0;
    for (size_t i = 0; i < a.count; i++)
        crossed += a.frames[i].method == RSUNWIND_SIGNAL_FRAME;
    EXPECT(crossed == 1);
    small.ss_flags = SS_DISABLE;
    sigaltstack(&small, NULL);
    end();
}

static void block(int how) {
    /* Whichever it is. */
    uint64_t mask = 1ull << (SIGPROF - 1) | 1ull << (SIGURG - 1);
    bare(SYS_rt_sigprocmask, how, &mask, NULL, sizeof mask);
}

static void what_is_asked_while_the_signal_is_blocked_is_one_entry(void) {
    begin();
    struct rsunwind_counts before, after;
    uint64_t nonce[4];
    block(SIG_BLOCK);
    rsunwind_counts(&before);
    EXPECT(rsunwind_request(client_a, &nonce[0]) == 0);
    EXPECT(rsunwind_request(client_b, &nonce[1]) == 0);
    EXPECT(rsunwind_request(client_c, &nonce[2]) == 0);
    EXPECT(rsunwind_request(client_a, &nonce[3]) == 1);
    EXPECT(a.calls + b.calls + c.calls == 0);
    EXPECT(rsunwind_unregister(client_b) == 0); /* gone before it was answered */
    int fresh = rsunwind_register(note, &b);    /* in its place, and has not asked */
    block(SIG_UNBLOCK);
    rsunwind_counts(&after);
    EXPECT(a.calls == 1 && b.calls == 0 && c.calls == 1);
    EXPECT(nonce[0] != 0 && nonce[1] == nonce[0] && nonce[2] == nonce[0] && nonce[3] == nonce[0]);
    EXPECT(a.nonce == nonce[0] && c.nonce == nonce[0] && a.frames == c.frames);
    /* A sample of the program's own CPU time may have come in besides. */
    EXPECT(after.entries > before.entries && after.unwinds - before.unwinds == after.entries - before.entries);
    EXPECT(after.cancelled - before.cancelled == 1);
    client_b = fresh;
    end();
}

static void *ends_blocked(void *argument) {
    block(SIG_BLOCK);
    EXPECT(rsunwind_request(client_a, argument) == 0);
    EXPECT(a.calls == 0);
    return NULL;
}

static void a_thread_that_ends_is_answered(void) {
    begin();
    uint64_t nonce = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, ends_blocked, &nonce);
    pthread_join(thread, NULL);
    EXPECT(a.calls == 1 && a.nonce == nonce && nonce != 0);
    end();
}

static void children(void) {
    begin();
    rsunwind_request(client_a, NULL);
    pid_t child = vfork();
    if (child == 0)
        _exit(rsunwind_request(client_a, NULL) == RSUNWIND_E_FOREIGN_THREAD ? 0 : 1);
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(a.calls == 1);
    if ((child = fork()) == 0) {
        a.calls = 0;
        uint64_t nonce = 0;
        for (int i = 0; i < 3; i++)
            EXPECT(rsunwind_request(client_a, &nonce) == 0 && a.nonce == nonce);
        EXPECT(a.calls == 3 && a.count > 3);
        end();
        _exit(bad);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(rsunwind_request(client_a, NULL) == 0 && a.calls == 2);
    end();
}

/* The state of a thread that has ended is used again, by threads that begin by asking. */
static void *asks(void *argument) {
    (void)argument;
    uint64_t nonce;
    EXPECT(rsunwind_request(client_a, &nonce) == 0 && a.nonce == nonce);
    return NULL;
}

static void threads_come_and_go(void) {
    begin();
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, asks, NULL);
        pthread_join(thread, NULL);
    }
    EXPECT(a.calls == 500);
    end();
    char line[256];
    long kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmRSS: %ld", &kilobytes);
    fclose(status);
    EXPECT(kilobytes > 0 && kilobytes < 20000);
}

int main(int count, char **arguments) {
    (void)arguments;
    nonsense_is_refused();
    there_are_62();
    each_request_is_an_entry_of_its_own();
    callbacks_share_their_entry();
    who_asks_in_one_handler_shares_a_walk();
    what_is_left_is_answered_when_the_thread_ends();
    a_client_may_ask_for_itself_only_once();
    handlers_may_ask();
    if (count > 1) {
        what_is_asked_while_the_signal_is_blocked_is_one_entry();
        a_thread_that_ends_is_answered();
    }
    threads_come_and_go();
    children();
    if (!bad)
        puts("right");
    return bad != 0;
}
