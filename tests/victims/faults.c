/* Touches PAGES fresh pages in `toucher`, giving them back after every 40,000, burns some CPU in
 * `burner`, and makes CALLS system calls in `caller`. usage: faults PAGES CALLS */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 40000 };

__attribute__((noinline)) static void toucher(char *memory, long pages) {
    for (long i = 0; i < pages; i++)
        ((volatile char *)memory)[i * 4096] = 1;
}

__attribute__((noinline)) static double burner(void) {
    volatile double x = 1;
    for (long i = 0; i < 60000000; i++)
        x += 1 / x;
    return x;
}

__attribute__((noinline)) static void caller(long calls) {
    for (volatile long i = 0; i < calls; i++)
        syscall(SYS_getppid);
}

int main(int count, char **arguments) {
    long pages = count > 1 ? atol(arguments[1]) : 0, calls = count > 2 ? atol(arguments[2]) : 0;
    size_t size = (size_t)MOST * 4096;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, size, MADV_NOHUGEPAGE);
    burner();
    for (long left = pages; left > 0; left -= MOST) {
        toucher(memory, left < MOST ? left : MOST);
        madvise(memory, size, MADV_DONTNEED);
    }
    caller(calls);
    return 0;
}
