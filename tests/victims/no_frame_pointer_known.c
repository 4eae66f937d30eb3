// Sleeps in a call of libc's that saves no register, called by a function whose frame is found by
// its frame pointer alone: of that nothing is known from outside, but where it was saved.
#include <string.h>
#include <stdio.h>
#include <unistd.h>

static int ends[2];

__attribute__((noinline)) static long sleeps(int size)
{
    char room[size];
    memset(room, 1, size);
    return read(ends[0], room, size) + room[size / 2];
}

__attribute__((noinline)) static long between(int size)
{
    char room[size];
    memset(room, 2, size);
    return sleeps(size * 2) + room[size / 2];
}

int main(int count, char **_)
{
    puts("ready");
    fflush(stdout);
    return pipe(ends) || between(count * 100) + 1;
}
