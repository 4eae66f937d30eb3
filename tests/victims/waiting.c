// Threads asleep in all kinds of calls, one that runs, two that wait for each other's mutexes.
// Each wait has a time limit, argument 1 in seconds, and must end by that alone: how many ended
// early, and how many with EINTR, is printed in the end; before that its pid.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUTER __attribute__((noinline)) static

static int pipes[2], pair[2], poller;
static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER, right = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t both;
static sem_t none;
static atomic_int stop;
static double limit; // seconds that the waits last
static long early, interrupted;
static pid_t child;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// What a wait that should have lasted gave.
static void judge(double began, int error)
{
    if (error == EINTR)
        __atomic_add_fetch(&interrupted, 1, __ATOMIC_RELAXED);
    if (now() - began < limit - 0.005)
        __atomic_add_fetch(&early, 1, __ATOMIC_RELAXED);
}

static struct timespec in(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    long long ns = t.tv_sec * 1000000000LL + t.tv_nsec + (long long)(limit * 1e9);
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

#define LENGTH (struct timespec){(long)limit, (long)((limit - (long)limit) * 1e9)}
#define WAITER(name, ...)                        \
    OUTER int wait_in_##name(void)               \
    {                                            \
        int error = 0;                           \
        errno = 0;                               \
        __VA_ARGS__;                             \
        return error ? error : errno;            \
    }                                            \
    static void *run_##name(void *_)             \
    {                                            \
        pthread_setname_np(pthread_self(), #name); \
        double began = now();                    \
        judge(began, wait_in_##name());          \
        return _;                                \
    }

WAITER(nanosleep, struct timespec t = LENGTH; nanosleep(&t, NULL))
WAITER(poll, struct pollfd f = {.fd = pipes[0], .events = POLLIN}; poll(&f, 1, limit * 1000))
WAITER(select, fd_set s; FD_ZERO(&s); FD_SET(pipes[0], &s);
       struct timeval t = {(long)limit, (limit - (long)limit) * 1e6}; select(pipes[0] + 1, &s, 0, 0, &t))
WAITER(epoll, struct epoll_event e; epoll_wait(poller, &e, 1, limit * 1000))
WAITER(recv, char c; (void)!recv(pair[0], &c, 1, 0); if (errno == EAGAIN) errno = 0)
WAITER(sem, struct timespec t = in(CLOCK_REALTIME); sem_timedwait(&none, &t))
WAITER(cond, pthread_mutex_lock(&held); struct timespec t = in(CLOCK_REALTIME);
       error = pthread_cond_timedwait(&never, &held, &t); pthread_mutex_unlock(&held))
WAITER(sigwait, sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR2); struct timespec t = LENGTH;
       sigtimedwait(&s, NULL, &t))
WAITER(child, int status; waitpid(child, &status, 0))
WAITER(read, char c; (void)!read(pipes[0], &c, 1))

OUTER void take_both(pthread_mutex_t *first, pthread_mutex_t *second)
{
    pthread_mutex_lock(first);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(second);
}
static void *run_one(void *_) { take_both(&left, &right); return _; }
static void *run_other(void *_) { take_both(&right, &left); return _; }

OUTER void compute(void)
{
    volatile double x = 0;
    while (!stop)
        x += 1;
}
static void *run_running(void *_)
{
    pthread_setname_np(pthread_self(), "running");
    compute();
    return _;
}

int main(int argc, char **argv)
{
    limit = argc > 1 ? atof(argv[1]) : 3;
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 1;
    struct timeval t = {(long)limit, (limit - (long)limit) * 1e6};
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    poller = epoll_create1(0);
    epoll_ctl(poller, EPOLL_CTL_ADD, pair[0], &(struct epoll_event){.events = EPOLLIN});
    sem_init(&none, 0, 0);
    pthread_barrier_init(&both, NULL, 2);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &s, NULL);
    child = fork();
    if (child == 0) {
        struct timespec t = LENGTH;
        nanosleep(&t, NULL);
        _exit(0);
    }
    void *(*waiters[])(void *) = {run_nanosleep, run_poll, run_select, run_epoll, run_recv,
                                  run_sem,       run_cond, run_sigwait, run_child};
    enum { COUNT = sizeof waiters / sizeof *waiters };
    pthread_t threads[COUNT], other, forever;
    for (int i = 0; i < COUNT; i++)
        pthread_create(&threads[i], NULL, waiters[i], NULL);
    pthread_create(&forever, NULL, run_read, NULL);
    pthread_create(&other, NULL, run_running, NULL);
    pthread_create(&forever, NULL, run_one, NULL);
    pthread_create(&forever, NULL, run_other, NULL);
    printf("%d\n", getpid());
    fflush(stdout);
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    stop = 1;
    pthread_join(other, NULL);
    printf("early %ld interrupted %ld\n", early, interrupted);
    fflush(stdout);
    _exit(0);
}
