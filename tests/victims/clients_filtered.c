/* Asks under a seccomp filter that kills whoever sends signals to threads with a value. */
#include "rsunwind.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void callback(const struct rsunwind_stack *stack, uint64_t nonce, void *data) {
    *(uint64_t *)data = stack->stop == 0 ? nonce : 0;
}

int main(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_tgsigqueueinfo, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    uint64_t shown = 0, nonce = 0;
    int client = rsunwind_register(callback, &shown);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 2;
    int result = rsunwind_request(client, &nonce);
    puts(result == 0 && nonce != 0 && shown == nonce ? "right" : "wrong");
    return 0;
}
