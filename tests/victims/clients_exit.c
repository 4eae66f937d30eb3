/* A callback that ends the process, after it has used more than a period. */
#include "rsunwind.h"
#include <time.h>
#include <unistd.h>

static void callback(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    (void)stack, (void)nonce, (void)data;
    struct timespec now;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec == 0 && now.tv_nsec < 50000000);
    _exit(0);
}

int main(void) {
    int client = rsunwind_register(callback, 0);
    rsunwind_request(client, 0);
    return 1;
}
