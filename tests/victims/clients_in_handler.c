// A client that asks from a handler, which may have come in a sleeping call: `clients_in_handler
// pause|spin` prints "right", or how often the callback had not run on return with the handler on
// the stack.
#include "rsunwind.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int turns;
static int client, wrong, calls, on_stack;
static uint64_t newest;
static void handler(int signal);

static void note(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    calls++;
    newest = nonce;
    for (size_t i = 0; i < stack->count; i++)
        if (stack->frames[i].pc >= (uint64_t)handler && stack->frames[i].pc < (uint64_t)handler + 512) {
            on_stack++;
            break;
        }
    (void)data;
}
__attribute__((noinline)) static void handler(int signal) {
    uint64_t nonce = 0;
    int before = calls, seen = on_stack;
    int result = rsunwind_request(client, &nonce);
    turns++;
    if (result != 0 || calls != before + 1 || on_stack != seen + 1 || newest != nonce) wrong++;
    (void)signal;
}

int main(int count, char **arguments) {
    int sleeps = count > 1 && !strcmp(arguments[1], "pause");
    client = rsunwind_register(note, NULL);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &often, NULL);
    while (turns < 100) {
        if (sleeps) pause();
        else for (volatile int i = 0; i < 1000; i++) {}
    }
    if (wrong) printf("%d of %d requests: no callback on return\n", wrong, turns);
    else puts("right");
    return 0;
}
