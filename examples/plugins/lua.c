/* The frames of Lua 5.4: a plug-in for programs that export Lua's functions, as Debian's does.
 *   gcc -O2 -shared -fPIC -I librsunwind/include -o lua.so examples/plugins/lua.c
 *   RSUNWIND_PLUGINS=$PWD/lua.so rsunwind record -- lua5.4 program.lua
 * docs/interpreters.md goes through it. */
#define _GNU_SOURCE
#include "rsunwind.h"
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

/* Lua's structures, by offset; the run at the start finds out whether they are so. */
/* lua_State: tt; ci. LClosure: tt; p */
enum { STATE_TAG = 8, STATE_CALL = 32, CLOSURE_TAG = 8, CLOSURE_CODE = 24 };
/* CallInfo; callstatus is in the upper half */
enum { CALL_FUNCTION = 0, CALL_PREVIOUS = 16, CALL_PC = 32, CALL_STATUS = 56 };
/* Proto … */
enum { CODE_SIZE = 24, CODE_LOCAL_COUNT = 36, CODE_ABS_COUNT = 40, CODE_CONSTANTS = 56, CODE_CODE = 64 };
enum { CODE_UPVALUES = 80, CODE_LINES = 88, CODE_ABS_LINES = 96, CODE_LOCALS = 104, CODE_SOURCE = 112 };
enum { TAG_THREAD = 8, TAG_LUA_CLOSURE = 6, TAG_SHORT_STRING = 4, TAG_LONG_STRING = 20, STRING_SIZE = 16, STRING_TEXT = 24 };
/* A C function; the loop was entered for it; instructions from one absolute line to the next */
enum { STATUS_C = 2, STATUS_FRESH = 4, ABS_EVERY = 128 };
enum { OP_MOVE = 0, OP_GETUPVAL = 9, OP_GETTABUP = 11, OP_GETFIELD = 14, OP_SELF = 20, OP_CALL = 68 };
/* Bits of the registers that a call preserves, by DWARF number */
static const unsigned kept = 1 << 3 | 1 << 6 | 15 << 12;
/* Bits: which may hold the loop's lua_State and its pc */
static unsigned state_registers, pc_registers;
/* The loop's code; the state of ours, while its stack is walked */
static uint64_t loop, loop_end, own_state;

/* What is read may be half changed: `bad` says so where nothing can be read. */
static uint64_t load(struct rsunwind_cursor *cursor, uint64_t address, int *bad) {
    uint64_t word = 0;
    *bad |= rsunwind_load(cursor, address, &word) != 0;
    return word;
}

static size_t string(struct rsunwind_cursor *cursor, uint64_t at, char *to, size_t room) {
    int bad = 0;
    uint64_t head = at ? load(cursor, at + 8, &bad) : 0, tag = head & 255, size = head >> 24 & 255;
    if (tag == TAG_LONG_STRING) size = load(cursor, at + STRING_SIZE, &bad);
    if ((tag != TAG_SHORT_STRING && tag != TAG_LONG_STRING) || bad) return 0;
    if (size > room) size = room;
    return rsunwind_copy(cursor, at + STRING_TEXT, to, size) ? 0 : size;
}

/* A Lua function: its Proto, and the index of its instruction */
struct function { uint64_t code, pc; };
/* Whether a call is of a Lua function; `pc` is its pc, if known. */
static int is_lua(struct rsunwind_cursor *cursor, uint64_t call, uint64_t pc, struct function *function, unsigned *status) {
    int bad = 0;
    *status = load(cursor, call + CALL_STATUS, &bad) >> 48;
    if (bad || *status & STATUS_C) return 0;
    uint64_t closure = load(cursor, load(cursor, call + CALL_FUNCTION, &bad), &bad);
    if (bad || (load(cursor, closure + CLOSURE_TAG, &bad) & 63) != TAG_LUA_CLOSURE) return 0;
    function->code = load(cursor, closure + CLOSURE_CODE, &bad);
    uint64_t start = load(cursor, function->code + CODE_CODE, &bad);
    uint64_t size = (load(cursor, function->code + CODE_SIZE, &bad) & 0xffffffff) * 4;
    /* Written back before calls, not at each instruction */
    if (pc - start - 4 >= size) pc = load(cursor, call + CALL_PC, &bad);
    /* It is that of the next instruction */
    function->pc = (pc - start) / 4 - 1;
    return !bad && function->pc * 4 < size;
}

static uint32_t line_of(struct rsunwind_cursor *cursor, struct function function) {
    int bad = 0;
    uint64_t counts = load(cursor, function.code + CODE_ABS_COUNT, &bad), lines = load(cursor, function.code + CODE_LINES, &bad);
    uint64_t table = load(cursor, function.code + CODE_ABS_LINES, &bad), from = 0;
    uint32_t line = counts >> 32, count = counts; /* the line that the function begins at */
    /* The last absolute line that is not behind the pc */
    for (uint64_t i = function.pc / ABS_EVERY + 1; i-- > 0;) {
        uint64_t absolute = i < count ? load(cursor, table + i * 8, &bad) : UINT64_MAX;
        if ((uint32_t)absolute <= function.pc) from = (uint32_t)absolute + 1, line = absolute >> 32, i = 0;
    }
    signed char steps[4 * ABS_EVERY];
    uint64_t size = function.pc + 1 - from;
    if (bad || size > sizeof steps || rsunwind_copy(cursor, lines + from, steps, size)) return 0;
    for (uint64_t i = 0; i < size; i++) line += steps[i];
    return line;
}

/* What its caller calls it: by the instruction that put it where it is called from. */
static size_t name_by(struct rsunwind_cursor *cursor, struct function caller, char *to, size_t room) {
    int bad = 0;
    uint64_t code = load(cursor, caller.code + CODE_CODE, &bad), constants = load(cursor, caller.code + CODE_CONSTANTS, &bad);
    uint64_t locals = load(cursor, caller.code + CODE_LOCALS, &bad), upvalues = load(cursor, caller.code + CODE_UPVALUES, &bad);
    uint64_t count = load(cursor, caller.code + CODE_LOCAL_COUNT, &bad) & 0xffffffff, at = caller.pc;
    uint32_t call = load(cursor, code + at * 4, &bad), one = 0;
    for (one = ~call; ((one ^ call) >> 7 & 255) != 0; one = load(cursor, code + at * 4, &bad))
        if (at-- == 0 || caller.pc - at > 200 || bad) return 0;
    unsigned op = one & 127, b = one >> 16 & 255, c = one >> 24;
    if ((call & 127) != OP_CALL) return 0;
    if (op == OP_GETTABUP || op == OP_GETFIELD || op == OP_SELF) return string(cursor, load(cursor, constants + c * 16, &bad), to, room);
    if (op == OP_GETUPVAL) return string(cursor, load(cursor, upvalues + b * 16, &bad), to, room);
    for (uint64_t i = 0; op == OP_MOVE && i < count && i < 200; i++) {
        /* From, and to before, these instructions */
        uint64_t alive = load(cursor, locals + i * 16 + 8, &bad);
        if ((uint32_t)alive <= at && at < alive >> 32 && b-- == 0) return string(cursor, load(cursor, locals + i * 16, &bad), to, room);
    }
    return 0;
}

static void give(struct rsunwind_cursor *cursor, struct function function, uint64_t caller) {
    int bad = 0;
    uint64_t source = load(cursor, function.code + CODE_SOURCE, &bad);
    uint32_t first = load(cursor, function.code + CODE_ABS_COUNT, &bad) >> 32;
    if (bad || rsunwind_frame(cursor, function.code, source ^ first, line_of(cursor, function)) != 1) return;
    char name[128], file[1024] = "";
    struct function by;
    unsigned status = 0;
    size_t size = caller && is_lua(cursor, caller, 0, &by, &status) ? name_by(cursor, by, name, sizeof name) : 0;
    size_t file_size = string(cursor, source, file, sizeof file), is_marked = file[0] == '@' || file[0] == '=';
    /* One that C calls has no name, as in Lua's own messages */
    const char *unknown = first ? "function" : "main chunk";
    struct rsunwind_code code = {sizeof code, size ? name : unknown, size ? size : strlen(unknown), file + is_marked,
                                 file_size - is_marked, NULL, 0, first, 1};
    rsunwind_describe(cursor, &code);
}

/* For each coroutine in the walk: its state, and the call that the next frame begins with. */
struct walk { uint64_t state[16], call[16]; };
/* A frame of the loop: which Lua functions it stands for. */
static int ask(struct rsunwind_cursor *cursor, void *data __attribute__((unused))) {
    int bad = 0, at = 0, is_exact = cursor->flags & RSUNWIND_CURSOR_EXACT;
    unsigned status = 0, missing = (state_registers | pc_registers) & ~cursor->known;
    if (missing && !(cursor->flags & RSUNWIND_CURSOR_LAST)) return RSUNWIND_NEED(__builtin_ctz(missing));
    if (missing & state_registers) return RSUNWIND_NOT_MINE;
    uint64_t pc = pc_registers & ~missing ? cursor->registers[__builtin_ctz(pc_registers)] : 0;
    uint64_t state = cursor->registers[__builtin_ctz(state_registers)];
    int is_state = (load(cursor, state + STATE_TAG, &bad) & 255) == TAG_THREAD;
    /* The loop's first instructions have it where the first argument is */
    if (!is_state && is_exact)
        is_state = (load(cursor, (state = cursor->registers[5]) + STATE_TAG, &bad) & 255) == TAG_THREAD;
    struct walk *walk = cursor->state;
    while (at < 15 && walk->state[at] && walk->state[at] != state) at++;
    uint64_t call = walk->state[at] == state ? walk->call[at] : is_state ? load(cursor, state + STATE_CALL, &bad) : 0;
    for (int depth = 0; call && depth < 10000; depth++) {
        struct function function;
        uint64_t previous = load(cursor, call + CALL_PREVIOUS, &bad);
        if (is_lua(cursor, call, pc, &function, &status)) give(cursor, function, status & STATUS_FRESH ? 0 : previous), pc = 0;
        else if (is_exact && depth == 0) return RSUNWIND_NOT_MINE; /* it is about to return to C */
        call = previous;
        if ((status & (STATUS_C | STATUS_FRESH)) == STATUS_FRESH) break;
    }
    if (is_state) walk->state[at] = state, walk->call[at] = call;
    return RSUNWIND_NATIVE;
}

/* Any frame, while the chunk runs: whether it is the loop's, and which registers have what. */
static int look(struct rsunwind_cursor *cursor, void *data __attribute__((unused))) {
    int bad = 0, *is_done = cursor->state;
    unsigned missing = kept & ~cursor->known, states = 0, pcs = 0;
    if (*is_done || !own_state) return RSUNWIND_NOT_MINE;
    if (missing && !(cursor->flags & RSUNWIND_CURSOR_LAST)) return RSUNWIND_NEED(__builtin_ctz(missing));
    /* It is by far the longest of the functions; its unwind information says how long. */
    uint64_t start = (uint64_t)_Unwind_FindEnclosingFunction((void *)cursor->pc), size = 1;
    for (uint64_t step = 1 << 16; start && step; step /= 2)
        while (_Unwind_FindEnclosingFunction((void *)(start + size + step)) == (void *)start) size += step;
    if (!start || size < 4096 || (loop && start != loop)) return RSUNWIND_NOT_MINE;
    uint64_t caller = load(cursor, load(cursor, own_state + STATE_CALL, &bad) + CALL_PREVIOUS, &bad);
    /* It has called us, so that its pc is written back */
    uint64_t pc = load(cursor, caller + CALL_PC, &bad);
    for (int i = 0; i < 16; i++)
        states |= (cursor->registers[i] == own_state) << i, pcs |= (cursor->registers[i] == pc) << i;
    state_registers = states & (loop ? state_registers : kept), pc_registers = pcs & (loop ? pc_registers : kept);
    loop = start, loop_end = start + size, *is_done = 1;
    return RSUNWIND_NATIVE;
}

static int client, seen;
static uint32_t lines[16]; /* of the frames of Lua's that were seen, innermost first */
static void see(const struct rsunwind_stack *stack, uint64_t nonce __attribute__((unused)), void *data __attribute__((unused))) {
    for (size_t i = 0; i < stack->count; i++)
        if (stack->frames[i].method == RSUNWIND_LANGUAGE) lines[seen++ % 16] = stack->frames[i].position;
}

static const char chunk[] = "local look = ...\nlocal function inner()\n  look() return look\nend\ninner()\nlook(inner())";
static const uint32_t wanted[] = {3, 5, 3, 6, 6}; /* the lines at which it calls called_by_lua() */
static int called_by_lua(void *state) {
    own_state = (uint64_t)state, rsunwind_request(client, NULL), own_state = 0;
    return 0;
}

/* Runs the chunk with a language that covers this code; gives the language, or an error. */
static int run(rsunwind_language_callback callback, uint64_t start, uint64_t end) {
    void *(*new_state)(void) = dlsym(RTLD_DEFAULT, "luaL_newstate");
    int (*load_chunk)(void *, const char *) = dlsym(RTLD_DEFAULT, "luaL_loadstring");
    void (*push)(void *, int (*)(void *), int) = dlsym(RTLD_DEFAULT, "lua_pushcclosure");
    void (*call)(void *, int, int, intptr_t, void *) = dlsym(RTLD_DEFAULT, "lua_callk");
    void (*close_state)(void *) = dlsym(RTLD_DEFAULT, "lua_close");
    struct rsunwind_language lua = {sizeof lua, "lua", callback, NULL, NULL};
    void *state = new_state && load_chunk && push && call && close_state ? new_state() : NULL;
    int language = state ? rsunwind_language_add(&lua) : RSUNWIND_E_MEMORY;
    if (language > 0 && rsunwind_language_cover(language, (void *)start, end - start) == 0 && load_chunk(state, chunk) == 0)
        push(state, called_by_lua, 0), call(state, 1, 0, 0, NULL);
    if (state) close_state(state);
    return language;
}

static int begin(void) {
    static const char unknown[] = "rsunwind: plug-in lua: this build of Lua is laid out otherwise; its functions have no names\n";
    double (*version)(void *) = dlsym(RTLD_DEFAULT, "lua_version");
    if (!version || version(NULL) != 504) return RSUNWIND_PLUGIN_UNUSED;
    if ((client = rsunwind_register(see, NULL)) < 0) return client;
    int language = run(look, 1, (1ull << 47) - 1); /* all code there is */
    if (language > 0) rsunwind_language_remove(language), seen = 0;
    if (language > 0 && state_registers) language = run(ask, loop, loop_end);
    rsunwind_unregister(client);
    if (language < 0 || (seen == 5 && memcmp(lines, wanted, sizeof wanted) == 0)) return language < 0 ? language : 0;
    if (state_registers) rsunwind_language_remove(language);
    return write(2, unknown, sizeof unknown - 1), RSUNWIND_PLUGIN_UNUSED;
}
RSUNWIND_PLUGIN(begin);
