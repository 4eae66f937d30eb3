/* A program that uses the interface if it is there. */
#define RSUNWIND_OPTIONAL
#include "rsunwind.h"
#include <stdio.h>

/* The library's own frame, main's, and those of libc below it. */
#ifndef FRAMES
#define FRAMES 4
#endif

static void callback(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    *(uint64_t *)data = stack->count >= FRAMES ? nonce : 0;
}

int main(void) {
    if (!rsunwind_register) {
        puts("absent");
        return 0;
    }
    uint64_t shown = 0, nonce = 0;
    int client = rsunwind_register(callback, &shown);
    int result = rsunwind_request(client, &nonce);
    puts(result == 0 && shown != 0 && shown == nonce ? "answered" : "wrong");
    return 0;
}
