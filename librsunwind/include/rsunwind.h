/*
 * rsunwind: a program asks its own threads for their stacks, and interpreters and JITs add their
 * frames to them.
 *
 * A program has the functions if it is linked with librsunwind.so or librsunwind.a (linked/install
 * installs them; pkg-config rsunwind), or if it runs under `rsunwind record` or with
 * librsunwind_preload.so in LD_PRELOAD. It need not be recorded. Linked programs that run with the
 * preload library use the one runtime that is in that; static ones record themselves under
 * `rsunwind record`, by SIGURG. To run with and without any of them, define
 * RSUNWIND_OPTIONAL before this header: the functions are then weak, and null without a library.
 *
 * It also says what its threads are at, by labels of regions, which samples then have.
 *
 * A *client* is who asks. A *request* asks for a stack of the calling thread. An *entry* answers
 * what a thread was asked: one walk, whose stack is shown once to every client that asked, under
 * the same *nonce*. Nonces are never 0 and never come twice in a process.
 *
 * Errors are negative error numbers of errno.h, which rsunwind_error() explains; errno itself is
 * never touched. Times are nanoseconds of CLOCK_MONOTONIC. Linux on x86-64.
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
#define RSUNWIND_E_NULL (-22)           /* -EINVAL:  a null pointer, an empty range, a bad value */
#define RSUNWIND_E_FULL (-16)           /* -EBUSY:   all clients, languages or ranges are taken */
#define RSUNWIND_E_NO_CLIENT (-2)       /* -ENOENT:  no such client, language, code or region */
#define RSUNWIND_E_IN_CALLBACK (-35)    /* -EDEADLK: a callback would wait for itself */
#define RSUNWIND_E_FOREIGN_THREAD (-95) /* -ENOTSUP: a vfork child, or a raw clone without TLS */
#define RSUNWIND_E_MEMORY (-12)         /* -ENOMEM */
#define RSUNWIND_E_UNREADABLE (-14)     /* -EFAULT:  memory that cannot be read */
#define RSUNWIND_E_BUDGET (-11)         /* -EAGAIN:  over a walk's limits, or those of labels */
#define RSUNWIND_E_STILL_RUNS (-110)    /* -ETIMEDOUT: a callback has not returned for seconds */

/* How a frame was found. */
enum rsunwind_method {
    RSUNWIND_REGISTERS = 0,     /* the leaf: where the thread stood */
    RSUNWIND_SFRAME = 1,        /* an SFrame row */
    RSUNWIND_EH_FRAME = 2,      /* an .eh_frame row */
    RSUNWIND_FRAME_POINTER = 3, /* the chain of frame pointers */
    RSUNWIND_SIGNAL_FRAME = 4,  /* what a signal interrupted */
    RSUNWIND_LEAF = 5,          /* a return address in code known to have no frame yet */
    RSUNWIND_LANGUAGE = 8,      /* an interpreter's own frame: `pc` stands for its code object */
    RSUNWIND_TOLD = 6           /* where a language said that its caller is */
};

/*
 * One frame. Where `method` is RSUNWIND_REGISTERS or RSUNWIND_SIGNAL_FRAME, `pc` is the instruction
 * that would have run next; elsewhere it is the address that a call returns to: look names and
 * lines up one byte before it. Other methods may be added.
 */
struct rsunwind_frame {
    uint64_t pc;
    uint8_t method;
    uint8_t unused[3]; /* of no meaning */
    /* Of RSUNWIND_LANGUAGE: where in the code object, in the language's own counting */
    uint32_t position;
};

/* Bits of rsunwind_stack.flags. */
#define RSUNWIND_FLAG_REDONE 2u        /* walked again with .eh_frame, to recover a register */
#define RSUNWIND_FLAG_FOREIGN_STACK 4u /* on a stack not its own: an alternate one, a coroutine */

#define RSUNWIND_FLAG_LANGUAGE_TROUBLE 256u /* a callback was in trouble: frames may be missing */

/* A stack, leaf first. It and its frames are gone when the callback returns. Its leaf lies in this
 * library if it was not a signal that began the entry. */
struct rsunwind_stack {
    const struct rsunwind_frame *frames;
    size_t count;
    uint64_t nonce;
    uint64_t time_ns;       /* when the entry began */
    uint64_t stack_pointer; /* where the walk began */
    /* Frames left out of the middle: both ends are kept of stacks deeper than 1,024 frames (in a
     * recorded program `depth`) */
    uint64_t elided;
    uint64_t elided_at;     /* frames before that gap */
    uint32_t stop;          /* why the walk ended: 0 at the root, a complete stack */
    uint32_t flags;
};

/*
 * Called once per entry, if the client asked in it, on the thread that asked and with what was
 * registered.
 *
 * It runs like a signal handler: only async-signal-safe functions may be called, all signals but
 * faults are held back, and it has 32 KiB of stack to itself. It may request (also for other
 * clients: they are answered before the entry ends; for its own client the request counts as
 * answered), register, and take a backtrace; it must return (no longjmp, no exception), must not
 * fork, and cannot unregister. errno is put back afterwards.
 */
typedef void (*rsunwind_callback)(const struct rsunwind_stack *stack, uint64_t nonce, void *data);

/*
 * Registers a client and gives its number, which is positive. `callback` and what `data` points at
 * must stay until the client is unregistered. Errors: RSUNWIND_E_NULL, RSUNWIND_E_FULL (a 63rd
 * client), RSUNWIND_E_MEMORY. Not for signal handlers.
 */
RSUNWIND_API int rsunwind_register(rsunwind_callback callback, void *data);

/*
 * Takes a client out and waits until none of its callbacks runs on any thread. Once this has
 * returned none runs and none will: what was requested and not answered is cancelled. Its number is
 * not given to another for a long time. Returns 0. Errors: RSUNWIND_E_NO_CLIENT;
 * RSUNWIND_E_IN_CALLBACK on a thread that is in any callback, RSUNWIND_E_STILL_RUNS (nothing is
 * changed then). Not for signal handlers, nor with a lock held that callbacks wait for.
 */
RSUNWIND_API int rsunwind_unregister(int client);

/*
 * Asks for a stack of the calling thread and stores the nonce under which the callback is shown it
 * (`nonce` may be null). Returns 0; 1 if the client had asked in the same entry before: one
 * callback answers both.
 *
 * The callback has run when this returns, with two exceptions. Within a callback the request is
 * answered after that callback. And in a recorded program, a thread that has SIGPROF blocked (which
 * only raw system calls can do there, and handlers on an alternate stack too small for the frame of
 * another signal) is answered when it lets the signal through, all its requests until then by one
 * entry.
 *
 * Signal safe: may be called in any handler. A thread's first call maps some 120 KiB for it.
 * Errors: RSUNWIND_E_NO_CLIENT, RSUNWIND_E_FOREIGN_THREAD, RSUNWIND_E_MEMORY.
 */
RSUNWIND_API int rsunwind_request(int client, uint64_t *nonce);

/*
 * The same for `count` clients by one entry: one walk, which all of them are shown under one nonce.
 * Returns 0; 1 if all had asked in the same entry before. (Two calls of rsunwind_request() one
 * after the other are two entries: the thread has gone on between them.) Errors, in which case
 * nobody has asked: as above; RSUNWIND_E_NULL for no clients, or more than RSUNWIND_CLIENTS.
 */
RSUNWIND_API int rsunwind_request_all(const int *clients, size_t count, uint64_t *nonce);

/*
 * Asks for a stack, and leaves it to the thread's next entry to show it, whoever begins that: the
 * next rsunwind_request() of anybody on this thread, a sample of a recorded program,
 * rsunwind_answer(), the thread's end. So parts of a program that know nothing of each other, and
 * are called by one signal handler, share a walk: each asks by this, and the handler ends with
 * rsunwind_answer(). The nonce, the same for all of them, is known at once, without a walk. Results
 * and signal safety as of rsunwind_request().
 */
RSUNWIND_API int rsunwind_request_later(int client, uint64_t *nonce);

/* Has what this thread was asked for answered now, as by rsunwind_request(); nothing happens if
 * there is nothing. Returns 0. Signal safe. Errors: RSUNWIND_E_FOREIGN_THREAD,
 * RSUNWIND_E_MEMORY. */
RSUNWIND_API int rsunwind_answer(void);

/* Stores the nonce of the entry under way on this thread (in a callback), else of its next one,
 * without a walk. Returns 0. Signal safe. Errors: as above, RSUNWIND_E_NULL. */
RSUNWIND_API int rsunwind_nonce(uint64_t *nonce);

/*
 * backtrace(3) by this library's unwinder: stores up to `size` addresses that the calls under way
 * return to, the caller's own first, and gives how many. Of stacks deeper than 1,024 frames at most
 * the innermost 768 are had. Signal safe, also in callbacks. Takes up to 6 KiB of the caller's
 * stack. Errors: RSUNWIND_E_NULL, RSUNWIND_E_FOREIGN_THREAD, RSUNWIND_E_MEMORY.
 */
RSUNWIND_API int rsunwind_backtrace(void **buffer, int size);

/* What has happened in the process so far. */
struct rsunwind_counts {
    uint64_t requests;  /* accepted with result 0: each leads to one callback or is cancelled */
    /* Entries in which somebody had asked, the CPU sampler of a recorded program included */
    uint64_t entries;
    uint64_t unwinds;   /* walks made for them: never more than entries */
    uint64_t callbacks; /* callbacks called */
    uint64_t cancelled; /* requests whose client was unregistered first */
};

/* Signal safe. Returns 0. Errors: RSUNWIND_E_NULL. */
RSUNWIND_API int rsunwind_counts(struct rsunwind_counts *counts);

/* What a negative result means and what to do about it, in one line; a static string. Signal
 * safe. */
RSUNWIND_API const char *rsunwind_error(int result);

/*
 * ---- Labels of regions: what a thread is doing ----
 *
 * A thread that begins a *region* gives it labels, keys with values: the route of a request, the
 * tenant, what kind of work it is. Samples of the thread have them until it ends the region, and
 * profiles can be asked for them. Regions nest: a thread has the labels of all regions that it is
 * in; of those with one key that of the innermost holds.
 *
 *     struct rsunwind_label labels[] = {
 *         RSUNWIND_LABEL("route", route),
 *         RSUNWIND_LABEL("trace_id", id),
 *     };
 *     int64_t region = rsunwind_region_begin(labels, 2);
 *     ...
 *     rsunwind_region_end(region);
 *
 * Labels with the keys `trace_id` and `span_id`, of 32 and 16 hexadecimal digits, link samples to
 * traces.
 *
 * To begin and to end cost some tens of nanoseconds, without a system call but on a thread's first
 * time; where nobody records the program, a comparison. Both may be done in signal handlers.
 * Everything is copied. The child of a fork is in the regions that it was born in; a thread that
 * ends in some has ended them.
 */

/* How many labels a region can have. A thread has room for some 4,000 bytes of them at a time. */
#define RSUNWIND_LABELS 16

struct rsunwind_label {
    const char *key; /* 1 to 63 bytes, UTF-8 */
    size_t key_length;
    /* UTF-8; of more than 255 bytes the beginning is kept, and the recording says so */
    const char *value;
    size_t value_length;
};

/* A label of two strings that end with a zero byte. */
#define RSUNWIND_LABEL(key, value) {(key), __builtin_strlen(key), (value), __builtin_strlen(value)}

/*
 * Begins a region of the calling thread and gives what it is to be ended by, which is positive; 0
 * if nobody records the thread. Errors, in which case no region has begun, and the recording
 * says how often: RSUNWIND_E_NULL (no label or too many, a key that is empty or too long);
 * RSUNWIND_E_BUDGET (no room). Signal safe.
 */
RSUNWIND_API int64_t rsunwind_region_begin(const struct rsunwind_label *labels, size_t count);

/*
 * Ends a region on the thread that began it, and with it those that began in it and have not ended.
 * Returns 0; nothing happens for 0. Errors: RSUNWIND_E_NO_CLIENT if the thread is not in it (any
 * more), or for what an error gave. Signal safe.
 */
RSUNWIND_API int rsunwind_region_end(int64_t region);

/*
 * ---- Languages: frames that no unwind table has ----
 *
 * An interpreter registers a *language*: a callback that is asked about native frames while a stack
 * is walked, and gives the language's own frames in their place. Registering costs nothing as long
 * as nobody profiles. There are two ways to be asked, and a language may use both:
 *
 * - *By code*: rsunwind_language_cover() names addresses (a JIT's code, an interpreter's loop); the
 *   callback is asked about each frame there.
 * - *By stack address*: an interpreter that keeps a record of each of its entries on the C stack
 *   names the address of the innermost one when
 *   a walk begins (`entry`). The native frame with stack pointer <= entry < CFA is then the
 *   interpreter's; the callback is asked about it (RSUNWIND_CURSOR_ENTRY) and sets `entry` to the
 *   next outer one, or to 0. No symbol and no range is needed, and nothing is slower where there is
 *   no entry. If the walk ends and an entry was not met, the callback is asked for what frames it
 *   has (RSUNWIND_CURSOR_REST), which are shown behind a gap.
 *
 * Callbacks run in a signal handler, on any thread, at any instruction, also of the interpreter
 * itself while it changes what is read:
 * - Nothing but the rsunwind_ functions that take a cursor may be called, and what is
 *   async-signal-safe. No locks, no allocation, no
 *   exception, no longjmp. There are 16 KiB of stack. All signals but faults are held back.
 * - What is read may be half changed, or garbage. Read through rsunwind_load() and rsunwind_copy(),
 *   which fail instead of faulting, and
 *   bound every loop. *A wild load of your own is a crash of the program, and a loop without end
 *   hangs it: neither can be contained.*
 * - What can be, is: reading what cannot be read, or more than the budget of a walk; a caller or a
 *   next entry that is not further up; more than 2 ms, and a microsecond for each frame given, in
 *   each of two calls, or more than 65,000 frames in one; frames that are missed. Each is
 *   counted, and marks the sample. A language that is in trouble in more than one call in nine for
 *   long is switched off; the recording says so.
 */

/* How many languages can be registered at a time, how many ranges they can have together, and bytes
 * of a language's state in a walk. */
#define RSUNWIND_LANGUAGES 16
#define RSUNWIND_RANGES 256
#define RSUNWIND_STATE 256

/* The registers of one instant, by DWARF number: rax 0, rdx 1, rcx 2, rbx 3, rsi 4, rdi 5, rbp 6,
 * rsp 7, r8 to r15. */
struct rsunwind_registers {
    uint64_t general[16];
    uint64_t pc;
};

/* `pc` is the instruction that was interrupted, and all registers are known; else pc is where a
 * call returns to */
#define RSUNWIND_CURSOR_EXACT 1u
#define RSUNWIND_CURSOR_ENTRY 2u /* asked because the frame reaches over `entry` */
/* Asked because the walk is over and `entry` was not met: only frames are of use, no answer is */
#define RSUNWIND_CURSOR_REST 4u
#define RSUNWIND_CURSOR_LAST 8u  /* no more registers can be known: it is in vain to need one */

/* A native frame, as the callback is shown it. */
struct rsunwind_cursor {
    uint64_t registers[16]; /* by DWARF number; good if their bit in `known` is set */
    uint64_t pc;
    uint32_t known;
    uint32_t flags; /* RSUNWIND_CURSOR_… */
    uint64_t cfa;   /* if the tables have said so (always with RSUNWIND_CURSOR_ENTRY); else 0 */
    uint64_t entry; /* with RSUNWIND_CURSOR_ENTRY: the entry; to be set to the next one, further
                     * up, or to 0. Asked by code: 0; may be set to an address in the
                     * frame, to be asked about it again, by entry, when `cfa` is known */
    /* The thread's own stack as far as it was seen, readable; both 0 on another one */
    uint64_t stack_low, stack_high;
    const struct rsunwind_registers *interrupted; /* what the signal interrupted, all known */
    /* RSUNWIND_STATE bytes of this language's own, zeroed when the walk begins, and when it
     * begins again */
    void *state;
    const void *walk; /* the library's own */
    /* Called by rsunwind_load() and its neighbours */
    const struct rsunwind_cursor_functions *functions;
};

/* What a callback says. Frames are given before, by rsunwind_frame(). Other numbers are trouble. */
/* The frame is no frame of the language's: it is unwound as any other */
#define RSUNWIND_NOT_MINE 0
#define RSUNWIND_NATIVE 1   /* the frames are given; this native frame is unwound as any other */
/* The frames are given, and registers, pc and known are those of the native caller, further up
 * the stack */
#define RSUNWIND_CALLER 2
#define RSUNWIND_END 3      /* the frames are given, and the stack ends here, complete */
/* The value of a register that is not known is needed. The walk begins again so that it is, if that
 * can be (RSUNWIND_CURSOR_LAST); the state is zeroed then. To be said before any frame is given. */
#define RSUNWIND_NEED(number) (64 + (number))

typedef int (*rsunwind_language_callback)(struct rsunwind_cursor *cursor, void *data);

/* Gives the stack address of the thread's innermost entry, 0 if there is none. The cursor is the
 * leaf's. */
typedef uint64_t (*rsunwind_entry_callback)(struct rsunwind_cursor *cursor, void *data);

struct rsunwind_language {
    size_t size;      /* sizeof(struct rsunwind_language) */
    /* What frames are shown as: up to 31 printing characters but blanks, ; [ ]; it is copied */
    const char *name;
    rsunwind_language_callback callback;
    rsunwind_entry_callback entry; /* null: asked by code alone */
    void *data;
};

/*
 * Registers a language and gives its number, which is positive. Errors: RSUNWIND_E_NULL,
 * RSUNWIND_E_FULL, RSUNWIND_E_MEMORY. None of these four is for signal handlers. A fork child has
 * its parent's languages.
 */
RSUNWIND_API int rsunwind_language_add(const struct rsunwind_language *language);

/*
 * Takes a language back, with its ranges, and waits until none of its callbacks runs on any thread;
 * none will afterwards, and what it used may go. Errors: RSUNWIND_E_NO_CLIENT;
 * RSUNWIND_E_IN_CALLBACK in any callback, RSUNWIND_E_STILL_RUNS (nothing is changed then). A
 * callback that was left for good, by a handler for a fault in it, is over when its thread is
 * sampled again, or has ended.
 */
RSUNWIND_API int rsunwind_language_remove(int language);

/* From now on the callback is asked about frames with code from `start` to before `start + size`.
 * Errors: RSUNWIND_E_NO_CLIENT, RSUNWIND_E_NULL, RSUNWIND_E_FULL, RSUNWIND_E_IN_CALLBACK. To take a
 * range back, before other code takes its place: the second, with the same numbers. */
RSUNWIND_API int rsunwind_language_cover(int language, const void *start, size_t size);
RSUNWIND_API int rsunwind_language_uncover(int language, const void *start, size_t size);

/*
 * For callbacks only, with the cursor that they were called with, before they return.
 *
 * rsunwind_load() stores the word at `address`: for memory that stays mapped while this thread is
 * in the handler, such as the frames of its own interpreter. About 3 ns; the first time that a walk
 * meets a page 150 to 300. rsunwind_copy() copies up to 64 KiB, also of memory that another thread
 * may unmap at this moment; about 1 µs. One walk has 524,288 loads and 8,192 copies and new pages.
 * Both return 0. Errors: RSUNWIND_E_UNREADABLE, RSUNWIND_E_BUDGET, RSUNWIND_E_NULL.
 */
static inline int rsunwind_load(const struct rsunwind_cursor *cursor, uint64_t address, uint64_t *word);
static inline int rsunwind_copy(const struct rsunwind_cursor *cursor, uint64_t address, void *to, size_t size);

/*
 * Adds a frame, the innermost first. `id` names its code object (its address, as a rule); `check`
 * is another number when another object has taken over that id (a generation, or a hash of what
 * names it); `position` is where in it the frame stands. Returns 0, or 1 if the code object is to
 * be described by rsunwind_describe() before the next call. Errors: RSUNWIND_E_BUDGET.
 */
static inline int rsunwind_frame(const struct rsunwind_cursor *cursor, uint64_t id, uint64_t check, uint32_t position);

/* From `position` on this is the line, up to the next one's. */
struct rsunwind_line {
    uint32_t position;
    uint32_t line;
};

/* A code object: what a frame is shown as. All is copied, up to 1,024 bytes of name, 4,096 of file,
 * and some thousand lines. */
struct rsunwind_code {
    size_t size; /* sizeof(struct rsunwind_code) */
    const char *name; /* as its programmers call it, qualified; UTF-8 */
    size_t name_length;
    const char *file;
    size_t file_length;
    const struct rsunwind_line *lines; /* in the order of their positions */
    size_t line_count;
    uint32_t first_line; /* also that of positions before the first of `lines`; 0 if unknown */
    uint32_t direct;     /* 1: positions are lines, and `lines` is not looked at */
};

/* Describes the code object of the frame just added. What the description points at is read without
 * a guard. Returns 0. Errors: RSUNWIND_E_NULL. */
static inline int rsunwind_describe(const struct rsunwind_cursor *cursor, const struct rsunwind_code *code);

/* The cursor brings these four along, so that a callback links to nothing. */
struct rsunwind_cursor_functions {
    size_t size;
    int (*load)(const struct rsunwind_cursor *cursor, uint64_t address, uint64_t *word);
    int (*copy)(const struct rsunwind_cursor *cursor, uint64_t address, void *to, size_t size);
    int (*frame)(const struct rsunwind_cursor *cursor, uint64_t id, uint64_t check, uint32_t position);
    int (*describe)(const struct rsunwind_cursor *cursor, const struct rsunwind_code *code);
};

static inline int rsunwind_load(const struct rsunwind_cursor *cursor, uint64_t address, uint64_t *word) {
    return cursor && cursor->functions ? cursor->functions->load(cursor, address, word) : RSUNWIND_E_NULL;
}
static inline int rsunwind_copy(const struct rsunwind_cursor *cursor, uint64_t address, void *to, size_t size) {
    return cursor && cursor->functions ? cursor->functions->copy(cursor, address, to, size) : RSUNWIND_E_NULL;
}
static inline int rsunwind_frame(const struct rsunwind_cursor *cursor, uint64_t id, uint64_t check, uint32_t position) {
    return cursor && cursor->functions ? cursor->functions->frame(cursor, id, check, position) : RSUNWIND_E_NULL;
}
static inline int rsunwind_describe(const struct rsunwind_cursor *cursor, const struct rsunwind_code *code) {
    return cursor && cursor->functions ? cursor->functions->describe(cursor, code) : RSUNWIND_E_NULL;
}

/*
 * ---- Code of a JIT, without a callback ----
 *
 * A JIT that registers the functions it makes has them named, with lines, and unwound exactly,
 * however many there are (100,000 take some 30 MB). Nothing of it is written to a recording before
 * it is first sampled.
 */

/* From the offset `from` on, up to the next one's: where the caller's frame is. The return address
 * is at CFA - 8. */
struct rsunwind_jit_rule {
    uint32_t from;
    int32_t cfa_offset;    /* CFA = register + this; a multiple of 8 */
    /* Where rbp, rbx, r12, r13, r14 and r15 are saved: CFA + this, from -16 to -256; 0 if the
     * code has not changed it */
    int16_t saved[6];
    uint16_t cfa_register; /* 6 (rbp) or 7 (rsp) */
    uint16_t unused;
};

struct rsunwind_jit_code {
    size_t size;       /* sizeof(struct rsunwind_jit_code) */
    const void *start; /* code that is registered already must not overlap; up to 16 MiB */
    size_t length;
    const char *language;             /* as in struct rsunwind_language */
    const struct rsunwind_code *code; /* positions are offsets from `start` */
    /* By offset, up to 1,024; null: the code keeps a chain of frame pointers, from its first
     * instruction on */
    const struct rsunwind_jit_rule *rules;
    size_t rule_count;
};

/*
 * Registers code, before it first runs. All is copied. Errors: RSUNWIND_E_NULL, RSUNWIND_E_MEMORY.
 * Takes it back, before other code takes its place: the second, by its start; errors:
 * RSUNWIND_E_NO_CLIENT, RSUNWIND_E_IN_CALLBACK. Neither is for signal handlers.
 */
RSUNWIND_API int rsunwind_jit_add(const struct rsunwind_jit_code *code);
RSUNWIND_API int rsunwind_jit_remove(const void *start);

/* What has happened to a language so far, in walks of all threads. */
struct rsunwind_language_counts {
    uint64_t asked;         /* times that the callback was asked about a frame */
    uint64_t frames;        /* that it gave */
    uint64_t troubled;      /* times that it was in trouble, for one or more of the reasons below */
    uint64_t unreadable;    /* it read what cannot be read */
    /* It named a caller, or a next entry, that is not further up, or gave an answer that there
     * is not */
    uint64_t not_advancing;
    uint64_t too_long;      /* it took too long, or wanted too much */
    uint64_t missing;       /* an entry was not met, or a register could not be known */
    uint64_t is_off;        /* 1 once it has been switched off */
};

/* Signal safe. Returns 0. Errors: RSUNWIND_E_NO_CLIENT, RSUNWIND_E_NULL. */
RSUNWIND_API int rsunwind_language_counts(int language, struct rsunwind_language_counts *counts);

/*
 * ---- An interpreter's own file describes its language ----
 *
 * An interpreter that is linked with nothing of this says in its own file, the program or a shared
 * library, what rsunwind_language_add() would be told:
 *
 *     RSUNWIND_LANGUAGE_NOTE(toy, {sizeof(struct rsunwind_language), "toy", frames,
 *     innermost_entry, 0});
 *
 * at file scope, once for each language, at most 4 in a file. It is data: nothing is linked, called
 * or looked up while nobody profiles. A profiler finds the note (section .note.rsunwind) when it
 * first meets the file's code on a stack, and registers the language then, by which the callbacks
 * may be called at any time. What is described lies in the file itself; `entry` is needed, since no
 * code is covered.
 *
 * Any kind of program will do. A library that is closed has its languages taken back before, where
 * the preload library sees it; in programs that are linked with this library alone, the program's
 * own file is looked at, and no library's. A note that is of another version, cut short, or leads
 * out of its file is left out, and the recording says so.
 */
#define RSUNWIND_NOTE_VERSION 1

#define RSUNWIND_LANGUAGE_NOTE(identifier, ...)                                                                       \
    extern const struct rsunwind_language identifier __asm__("rsunwind_language_" #identifier)                        \
        __attribute__((visibility("hidden")));                                                                        \
    __attribute__((used)) const struct rsunwind_language identifier = __VA_ARGS__;                                    \
    RSUNWIND_NOTE_AT("rsunwind_language_" #identifier)
/* A name, a kind, a version, and how far from here the description is. */
#define RSUNWIND_NOTE_AT(symbol)                                                                                        \
    __asm__(".pushsection .note.rsunwind, \"a\", @note\n .balign 4\n .long 9, 8, 1\n .asciz \"rsunwind\"\n .balign 4\n"  \
            " .long 1\n .long " symbol " - .\n .popsection")

/*
 * ---- Plug-ins: for an interpreter that knows nothing of this header ----
 *
 * RSUNWIND_PLUGINS=/path/a.so:/path/b.so names shared libraries, which are loaded into each program
 * that has the preload library, at its start, outside of any signal handler and before main. Each
 * defines what follows, at file scope:
 *
 *     static int begin(void) { ... }
 *     RSUNWIND_PLUGIN(begin);
 *
 * `begin` is called once, on the main thread. It registers languages, and gives 0;
 * RSUNWIND_PLUGIN_UNUSED where there is nothing for it to do in this program, so that the library
 * goes again, without a word; or an error. It looks for the interpreter in the program with
 * dlsym(), finds nothing of it in the sh that starts it, and must do no harm there: it prints
 * nothing, and leaves no threads and no signals.
 *
 * Paths are absolute. A library that another user could have put there or could change (by its
 * owner and mode, and those of the directories above), that cannot be loaded, or that is of another
 * version of this, is left out: one line on standard error says so, and the program runs on. A
 * program that runs with more rights than who started it ignores the variable.
 */
#define RSUNWIND_PLUGIN_VERSION 2
#define RSUNWIND_PLUGIN_UNUSED 1

struct rsunwind_plugin {
    uint32_t version; /* RSUNWIND_PLUGIN_VERSION */
    uint32_t unused;
    int (*begin)(void);
};

extern __attribute__((visibility("default"))) const struct rsunwind_plugin rsunwind_plugin;
#define RSUNWIND_PLUGIN(begin) const struct rsunwind_plugin rsunwind_plugin = {RSUNWIND_PLUGIN_VERSION, 0, begin}

#ifdef __cplusplus
}
#endif

#endif
