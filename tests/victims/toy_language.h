/* The frames of toy.h, for whoever walks the stack: `data` is where `toy_innermost` is. */
#include "rsunwind.h"
#include "toy.h"
#include <string.h>

static uint64_t toy_entry_of(struct rsunwind_cursor *cursor, void *data) {
    (void)cursor;
    return (uint64_t)*(const struct toy_entry *volatile *)data;
}

static int toy_frames(struct rsunwind_cursor *cursor, void *data) {
    struct toy_entry entry;
    struct toy_code code;
    (void)data;
    if (!(cursor->flags & RSUNWIND_CURSOR_ENTRY)) return RSUNWIND_NOT_MINE;
    if (rsunwind_copy(cursor, cursor->entry, &entry, sizeof entry)) return RSUNWIND_NATIVE;
    if (rsunwind_copy(cursor, (uint64_t)entry.code, &code, sizeof code)) return RSUNWIND_NATIVE;
    if (rsunwind_frame(cursor, (uint64_t)entry.code, code.line, code.line) == 1) {
        struct rsunwind_code described = {sizeof described, code.name, strlen(code.name), code.file, strlen(code.file), NULL, 0, code.line, 1};
        rsunwind_describe(cursor, &described);
    }
    cursor->entry = (uint64_t)entry.outer;
    return RSUNWIND_NATIVE;
}
