/* Three clients, many threads, and a storm of signals whose handler asks too. Every request that
 * was accepted must be answered by exactly one callback of its client, on its thread, under its
 * nonce, with a stack that shows who asked. Prints "right" and the counts. usage: clients_storm
 * SECONDS THREADS */
#include "rsunwind.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 3, LOG = 1 << 20 };

/* One section for each client's requests, so that a stack can be seen to come from there. */
#define ASK(letter, index)                                                                           \
    extern char __start_from_##letter[], __stop_from_##letter[];                                       \
    __attribute__((noinline, section("from_" #letter))) static int ask_##letter(uint64_t *nonce) {    \
        int result = rsunwind_request(client[index], nonce);                                         \
        __asm__ volatile("" ::: "memory");                                                           \
        return result;                                                                               \
    }

static int client[CLIENTS];
ASK(a, 0)
ASK(b, 1)
ASK(c, 2)

static int (*const ask[CLIENTS])(uint64_t *) = {ask_a, ask_b, ask_c};

struct log {
    atomic_uint asked, answered, nested;
    struct { uint64_t nonce; } *ask, *answer;
};
static __thread struct log logs[CLIENTS];
static __thread atomic_int in_callback;
static __thread uint64_t entry_nonce;
static atomic_uint bad, entries_seen, signals_taken;
static atomic_int stop;

static void wrong(const char *what, uint64_t value) {
    if (atomic_fetch_add(&bad, 1) < 10)
        fprintf(stderr, "%s: %llu\n", what, (unsigned long long)value);
}

static int shows(const struct rsunwind_stack *stack, int index) {
    char *const from[] = {__start_from_a, __start_from_b, __start_from_c}, *const to[] = {__stop_from_a, __stop_from_b, __stop_from_c};
    for (size_t i = 0; i < stack->count; i++)
        if ((char *)stack->frames[i].pc > from[index] && (char *)stack->frames[i].pc <= to[index])
            return 1;
    return 0;
}

static void note(struct log *log, uint64_t nonce) {
    log->ask[atomic_fetch_add(&log->asked, 1)].nonce = nonce;
}

static void callback(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    int index = (int)(intptr_t)data;
    struct log *log = &logs[index];
    log->answer[atomic_fetch_add(&log->answered, 1)].nonce = nonce;
    if (nonce == 0 || nonce != stack->nonce)
        wrong("nonce of the stack", stack->nonce);
    if (stack->stop != 0)
        wrong("walk ended by", stack->stop);
    if (atomic_fetch_add(&in_callback, 1) != 0)
        wrong("callback within a callback", nonce);
    if (entry_nonce != nonce) {
        entry_nonce = nonce;
        atomic_fetch_add(&entries_seen, 1);
        if (!shows(stack, index))
            wrong("the stack does not show who asked", (uint64_t)index);
        /* The first of an entry asks for the others, now and then: they share the nonce. */
        if (nonce % 7 == 0) {
            for (int other = 0; other < CLIENTS; other++) {
                uint64_t nested = 0;
                int result = rsunwind_request(client[other], &nested);
                if (result != (other == index) || nested != nonce)
                    wrong("nested request", nested);
                if (result == 0)
                    note(&logs[other], nested), atomic_fetch_add(&logs[other].nested, 1);
            }
        }
    }
    atomic_fetch_sub(&in_callback, 1);
}

static void request(int index) {
    uint64_t nonce = 0;
    int result = ask[index](&nonce);
    if (result == 0)
        note(&logs[index], nonce);
    else
        wrong("request", (uint64_t)-result);
}

static void on_signal(int signal) {
    (void)signal;
    atomic_fetch_add(&signals_taken, 1);
    static __thread unsigned turn;
    request((int)(turn++ % CLIENTS));
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void *work(void *argument) {
    for (int i = 0; i < CLIENTS; i++) {
        logs[i].ask = malloc(LOG * sizeof(uint64_t));
        logs[i].answer = malloc(LOG * sizeof(uint64_t));
    }
    atomic_store((atomic_int *)argument, 1);
    for (unsigned turn = 0; !atomic_load(&stop) && logs[0].asked < LOG / 2; turn++) {
        request((int)(turn * 2654435761u >> 16) % CLIENTS);
        for (volatile int i = 0; i < 500; i++) {}
    }
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        struct log *log = &logs[i];
        if (log->asked != log->answered)
            wrong("asked less answered", log->asked - log->answered);
        qsort(log->ask, log->asked, sizeof(uint64_t), compare);
        qsort(log->answer, log->answered, sizeof(uint64_t), compare);
        if (memcmp(log->ask, log->answer, log->asked * sizeof(uint64_t)) != 0)
            wrong("nonces differ for client", (uint64_t)i);
        for (unsigned j = 1; j < log->answered; j++)
            if (log->answer[j].nonce == log->answer[j - 1].nonce)
                wrong("called twice in one entry", log->answer[j].nonce);
        if (log->asked < 10 || log->nested == 0)
            wrong("too little happened", log->asked);
    }
    return NULL;
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 1;
    int threads = count > 2 ? atoi(arguments[2]) : 8;
    for (int i = 0; i < CLIENTS; i++)
        if ((client[i] = rsunwind_register(callback, (void *)(intptr_t)i)) <= 0)
            return 2;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_NODEFER};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread[64];
    static atomic_int ready[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, work, &ready[i]);
    for (int i = 0; i < threads; i++)
        while (!atomic_load(&ready[i]))
            usleep(100);
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (int i = 0; i < threads; i++)
            pthread_kill(thread[i], SIGUSR1);
        usleep(50);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) / 1e9 < seconds);
    atomic_store(&stop, 1);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    struct rsunwind_counts counts;
    rsunwind_counts(&counts);
    if (counts.requests != counts.callbacks || counts.cancelled != 0)
        wrong("requests less callbacks", counts.requests - counts.callbacks);
    if (counts.unwinds != counts.entries)
        wrong("entries less unwinds", counts.entries - counts.unwinds);
    for (int i = 0; i < CLIENTS; i++)
        if (rsunwind_unregister(client[i]) != 0)
            wrong("unregister", (uint64_t)i);
    printf("%s %u signals, %u entries seen, %llu requests, %llu entries, %llu unwinds\n", bad ? "wrong" : "right", signals_taken,
           entries_seen, (unsigned long long)counts.requests, (unsigned long long)counts.entries, (unsigned long long)counts.unwinds);
    return bad != 0;
}
