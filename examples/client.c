/*
 * A program that asks its own threads for their stacks: who has called the slow path, and from
 * where? Works whether it is recorded or not.
 *
 *   cc client.c $(pkg-config --cflags --libs rsunwind) -o client && ./client
 */
#include "rsunwind.h"
#include <stdio.h>

enum { FRAMES = 64 };

/* What a callback has seen. It runs as a signal handler does: it copies, and nothing else. */
struct seen {
    uint64_t pcs[FRAMES];
    size_t count;
    int complete;
};

static void note(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    struct seen *seen = data;
    (void)nonce;
    seen->count = stack->count < FRAMES ? stack->count : FRAMES;
    for (size_t i = 0; i < seen->count; i++)
        seen->pcs[i] = stack->frames[i].pc;
    seen->complete = stack->stop == 0;
}

static __attribute__((noinline)) int slow_path(int client) {
    uint64_t nonce;
    int error = rsunwind_request(client, &nonce);
    if (error < 0)
        fprintf(stderr, "no stack: %s\n", rsunwind_error(error));
    return error; /* behind the call: it is no tail call, and this function is on the stack */
}

int main(void) {
    static struct seen seen;
    int client = rsunwind_register(note, &seen);
    if (client < 0) {
        fprintf(stderr, "no client: %s\n", rsunwind_error(client));
        return 1;
    }
    if (slow_path(client) < 0)
        return 1;
    printf("%zu frames, %s\n", seen.count, seen.complete ? "to the root" : "cut short");
    for (size_t i = 0; i < seen.count; i++)
        printf("  %#llx\n", (unsigned long long)seen.pcs[i]);
    return rsunwind_unregister(client) < 0;
}
