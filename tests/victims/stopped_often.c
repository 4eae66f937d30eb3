// Real-time signals that come all the time, and a thread that goes to sleep in epoll_wait again and
// again: how many signals were sent and came, and how many sleeps ended with EINTR, is printed
// after SIGUSR1; before that its pid.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static atomic_long sent, came, interrupted;
static atomic_int stop;

static void count(int _) { came++; }
static void end(int _) { stop = 1; }

static void *send(void *_)
{
    while (!stop) {
        if (sent - came < 100 && sigqueue(getpid(), SIGRTMIN, (union sigval){0}) == 0)
            sent++;
    }
    return _;
}

static void *sleep_often(void *_)
{
    int poller = epoll_create1(0);
    struct epoll_event e;
    while (!stop) {
        if (epoll_wait(poller, &e, 1, 1) < 0 && errno == EINTR)
            interrupted++;
        // Sometimes a stop comes just when it goes to sleep.
        struct timespec began, now;
        clock_gettime(CLOCK_MONOTONIC, &began);
        do
            clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec == began.tv_sec && now.tv_nsec - began.tv_nsec < 100000);
    }
    return _;
}

int main(void)
{
    signal(SIGRTMIN, count);
    signal(SIGUSR1, end);
    sigset_t s, old;
    sigfillset(&s);
    pthread_sigmask(SIG_BLOCK, &s, &old);
    pthread_t sender, sleeper;
    pthread_create(&sender, NULL, send, NULL);
    pthread_create(&sleeper, NULL, sleep_often, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    printf("%d\n", getpid());
    fflush(stdout);
    while (!stop)
        ;
    pthread_join(sender, NULL);
    pthread_join(sleeper, NULL);
    // What was sent before has come by the next call.
    getppid();
    printf("lost %ld interrupted %ld\n", sent - came, interrupted);
    printf("some %d\n", sent > 0);
    fflush(stdout);
    _exit(0);
}
