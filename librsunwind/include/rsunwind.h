/*
 * rsunwind: a program asks its own threads for their stacks.
 *
 * The functions are in librsunwind_preload.so. A program has them if it is linked with that library, or if it runs under
 * `rsunwind record` or with the library in LD_PRELOAD; it need not be recorded. To run with and without it, define
 * RSUNWIND_OPTIONAL before this header: the functions are then weak, and null without the library.
 *
 * A *client* is who asks. A *request* asks for a stack of the calling thread. An *entry* answers what a thread was asked: one walk,
 * whose stack is shown once to every client that asked, under the same *nonce*. Nonces are never 0 and never come twice in a process.
 *
 * Errors are negative error numbers of errno.h, which rsunwind_error() explains; errno itself is never touched.
 * Times are nanoseconds of CLOCK_MONOTONIC. Linux on x86-64.
 */
#ifndef RSUNWIND_H
#define RSUNWIND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef RSUNWIND_OPTIONAL
#define RSUNWIND_API __attribute__((weak))
#else
#define RSUNWIND_API
#endif

/* How many clients can be registered at a time. */
#define RSUNWIND_CLIENTS 62

/* Errors, as results. */
#define RSUNWIND_E_NULL (-22)           /* -EINVAL:  a null pointer */
#define RSUNWIND_E_FULL (-16)           /* -EBUSY:   all clients are taken */
#define RSUNWIND_E_NO_CLIENT (-2)       /* -ENOENT:  not registered (any more) */
#define RSUNWIND_E_IN_CALLBACK (-35)    /* -EDEADLK: a callback would wait for itself */
#define RSUNWIND_E_FOREIGN_THREAD (-95) /* -ENOTSUP: the child of a vfork, or a raw clone without thread-local memory of its own */
#define RSUNWIND_E_MEMORY (-12)         /* -ENOMEM */

/* How a frame was found. */
enum rsunwind_method {
    RSUNWIND_REGISTERS = 0,     /* the leaf: where the thread stood */
    RSUNWIND_SFRAME = 1,        /* an SFrame row */
    RSUNWIND_EH_FRAME = 2,      /* an .eh_frame row */
    RSUNWIND_FRAME_POINTER = 3, /* the chain of frame pointers */
    RSUNWIND_SIGNAL_FRAME = 4,  /* what a signal interrupted */
    RSUNWIND_LEAF = 5,          /* a return address in code known to have no frame yet */
    RSUNWIND_LANGUAGE = 6       /* an interpreter's own frame */
};

/*
 * One frame. Where `method` is RSUNWIND_REGISTERS or RSUNWIND_SIGNAL_FRAME, `pc` is the instruction that would have run next; elsewhere it is
 * the address that a call returns to: look names and lines up one byte before it. Other methods may be added.
 */
struct rsunwind_frame {
    uint64_t pc;
    uint8_t method;
    uint8_t unused[7]; /* of no meaning */
};

/* Bits of rsunwind_stack.flags. */
#define RSUNWIND_FLAG_REDONE 2u        /* walked again with .eh_frame, to recover a register */
#define RSUNWIND_FLAG_FOREIGN_STACK 4u /* the thread ran on a stack that is not its own: an alternate stack, a coroutine */

/* A stack, leaf first. It and its frames are gone when the callback returns. Its leaf lies in this library if it was not a signal that began the entry. */
struct rsunwind_stack {
    const struct rsunwind_frame *frames;
    size_t count;
    uint64_t nonce;
    uint64_t time_ns;       /* when the entry began */
    uint64_t stack_pointer; /* where the walk began */
    uint64_t elided;        /* frames left out of the middle: both ends are kept of stacks deeper than 1,024 frames (in a recorded program `depth`) */
    uint64_t elided_at;     /* frames before that gap */
    uint32_t stop;          /* why the walk ended: 0 at the root, a complete stack */
    uint32_t flags;
};

/*
 * Called once per entry, if the client asked in it, on the thread that asked and with what was registered.
 *
 * It runs like a signal handler: only async-signal-safe functions may be called, all signals but faults are held back, and it has
 * 32 KiB of stack to itself. It may request (also for other clients: they are answered before the entry ends; for its own client the request
 * counts as answered), register, and take a backtrace; it must return (no longjmp, no exception), must not fork, and cannot unregister.
 * errno is put back afterwards.
 */
typedef void (*rsunwind_callback)(const struct rsunwind_stack *stack, uint64_t nonce, void *data);

/*
 * Registers a client and gives its number, which is positive. `callback` and what `data` points at must stay until the client is unregistered.
 * Errors: RSUNWIND_E_NULL, RSUNWIND_E_FULL (a 63rd client), RSUNWIND_E_MEMORY. Not for signal handlers.
 */
RSUNWIND_API int rsunwind_register(rsunwind_callback callback, void *data);

/*
 * Takes a client out and waits until none of its callbacks runs on any thread. Once this has returned none runs and none will: what was requested and
 * not answered is cancelled. Its number is not given to another for a long time.
 * Returns 0. Errors: RSUNWIND_E_NO_CLIENT; RSUNWIND_E_IN_CALLBACK on a thread that is in any callback (nothing is changed then).
 * Not for signal handlers, nor with a lock held that callbacks wait for.
 */
RSUNWIND_API int rsunwind_unregister(int client);

/*
 * Asks for a stack of the calling thread and stores the nonce under which the callback is shown it (`nonce` may be null).
 * Returns 0; 1 if the client had asked in the same entry before: one callback answers both.
 *
 * The callback has run when this returns, with two exceptions. Within a callback the request is answered after that callback. And in a
 * recorded program, a thread that has SIGPROF blocked (which only raw system calls can do there, and handlers on an alternate stack too
 * small for the frame of another signal) is answered when it lets the signal through, all its requests until then by one entry.
 *
 * Signal safe: may be called in any handler. A thread's first call maps some 120 KiB for it.
 * Errors: RSUNWIND_E_NO_CLIENT, RSUNWIND_E_FOREIGN_THREAD, RSUNWIND_E_MEMORY.
 */
RSUNWIND_API int rsunwind_request(int client, uint64_t *nonce);

/*
 * backtrace(3) by this library's unwinder: stores up to `size` addresses that the calls under way return to, the caller's own first, and
 * gives how many. Of stacks deeper than 1,024 frames at most the innermost 768 are had.
 * Signal safe, also in callbacks. Takes up to 6 KiB of the caller's stack. Errors: RSUNWIND_E_NULL, RSUNWIND_E_FOREIGN_THREAD, RSUNWIND_E_MEMORY.
 */
RSUNWIND_API int rsunwind_backtrace(void **buffer, int size);

/* What has happened in the process so far. */
struct rsunwind_counts {
    uint64_t requests;  /* accepted with result 0: each leads to one callback or is cancelled */
    uint64_t entries;   /* entries in which somebody had asked, the CPU sampler of a recorded program included */
    uint64_t unwinds;   /* walks made for them: never more than entries */
    uint64_t callbacks; /* callbacks called */
    uint64_t cancelled; /* requests whose client was unregistered first */
};

/* Signal safe. Returns 0. Errors: RSUNWIND_E_NULL. */
RSUNWIND_API int rsunwind_counts(struct rsunwind_counts *counts);

/* What a negative result means and what to do about it, in one line; a static string. Signal safe. */
RSUNWIND_API const char *rsunwind_error(int result);

#ifdef __cplusplus
}
#endif

#endif
