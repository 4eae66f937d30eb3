/* python_late LIBPYTHON SCRIPT ARGUMENT: runs a script in an interpreter that is loaded when the
 * program has long begun. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    volatile long sink = 0;
    for (long i = 0; i < 50000000; i++) sink += i;
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    int (*python_main)(int, char **) = (int (*)(int, char **))dlsym(library, "Py_BytesMain");
    return python_main(count - 1, arguments + 1);
}
