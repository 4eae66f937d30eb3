/* The plug-in for toy.c. -DVERSION: of another version; -DFAILS: one that gives up. */
#define _GNU_SOURCE
#include "toy_language.h"
#include <dlfcn.h>

static int begin(void) {
    void *innermost = dlsym(RTLD_DEFAULT, "toy_innermost");
    if (!innermost) return RSUNWIND_PLUGIN_UNUSED;
    struct rsunwind_language toy = {sizeof toy, "toy", toy_frames, toy_entry_of, innermost};
    int language = rsunwind_language_add(&toy);
    return language < 0 ? language : 0;
}

#ifdef VERSION
const struct rsunwind_plugin rsunwind_plugin = {VERSION, 0, begin};
#elif defined FAILS
static int fail(void) {
    (void)begin;
    return RSUNWIND_E_FULL;
}
RSUNWIND_PLUGIN(fail);
#else
RSUNWIND_PLUGIN(begin);
#endif
