/* Clients that are unregistered while all threads ask for them and are in their callbacks. After
 * unregistering, what the callback was given is poisoned: a callback that comes later finds that.
 * usage: clients_leaving SECONDS THREADS */
#include "rsunwind.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ALIVE = 0x600d, DEAD = 0xdead };
struct given {
    atomic_uint state;
    atomic_ulong calls;
};

static atomic_int current, stop;
static atomic_ulong late, asked, refused, other;

static void callback(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    struct given *given = data;
    for (int i = 0; i < 20; i++) {
        if (atomic_load(&given->state) != ALIVE)
            atomic_fetch_add(&late, 1);
        if (i == 10 && nonce % 64 == 0)
            sched_yield(); /* lets whoever unregisters come in between */
    }
    atomic_fetch_add(&given->calls, stack->count > 0);
}

static void *work(void *argument) {
    (void)argument;
    while (!atomic_load(&stop)) {
        int result = rsunwind_request(atomic_load(&current), NULL);
        if (result == RSUNWIND_E_NO_CLIENT)
            usleep(50); /* or the main thread never gets a turn */
        atomic_fetch_add(result == 0 ? &asked : result == RSUNWIND_E_NO_CLIENT ? &refused : &other, 1);
    }
    return NULL;
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 1;
    int threads = count > 2 ? atoi(arguments[2]) : 16;
    pthread_t thread[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, work, NULL);
    unsigned long turns = 0, calls = 0;
    time_t end = time(NULL) + (time_t)seconds + 1;
    while (time(NULL) < end) {
        struct given *given = malloc(sizeof *given);
        atomic_init(&given->state, ALIVE);
        atomic_init(&given->calls, 0);
        int client = rsunwind_register(callback, given);
        if (client <= 0)
            return 2;
        atomic_store(&current, client);
        for (int i = 0; i < 50 && atomic_load(&given->calls) < 3; i++)
            usleep(20);
        if (rsunwind_unregister(client) != 0)
            return 3;
        atomic_store(&given->state, DEAD);
        calls += atomic_load(&given->calls);
        usleep(50);
        free(given);
        turns++;
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    struct rsunwind_counts counts;
    rsunwind_counts(&counts);
    int bad = late || other || turns < 20 || calls < 20 || counts.requests != counts.callbacks + counts.cancelled
              || counts.requests != asked;
    printf("%s %lu turns, %lu calls, %lu late, %lu asked, %lu refused, %lu other, %llu cancelled\n", bad ? "wrong" : "right", turns,
           calls, late, asked, refused, other, (unsigned long long)counts.cancelled);
    return bad;
}
