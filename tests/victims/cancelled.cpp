// Cancellation and pthread_exit run C++ destructors; exceptions cross many frames, in several
// threads at once.
#include <atomic>
#include <cstdio>
#include <ctime>
#include <poll.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <unistd.h>

static std::atomic<int> destroyed, ready;
struct Guard { ~Guard() { destroyed++; } };

static void burn(long us) {
  timespec t;
  auto now = [&] { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec * 1000000 + t.tv_nsec / 1000; };
  for (long start = now(); now() - start < us;) for (volatile int i = 0; i < 2000; i = i + 1) {}
}

static void nested(int depth, bool leave) {
  Guard guard;
  if (depth > 0) return nested(depth - 1, leave);
  ready++;
  if (leave) pthread_exit(nullptr);
  for (;;) poll(nullptr, 0, -1);
}

static void *cancelled(void *) { burn(1000); nested(20, false); return nullptr; }
static void *leaving(void *) { burn(1000); nested(20, true); return nullptr; }

static int thrower(int depth) {
  Guard guard;
  if (depth == 0) { burn(20); throw std::runtime_error("thrown"); }
  return thrower(depth - 1) + 1;
}

int main() {
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    ready = 0;
    pthread_create(&thread, nullptr, i % 2 ? cancelled : leaving, nullptr);
    while (!ready) usleep(200);
    if (i % 2) pthread_cancel(thread);
    pthread_join(thread, nullptr);
  }
  std::printf("%d\n", destroyed.exchange(0));
  std::atomic<int> caught{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; n++)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; i++) try { thrower(i % 40); } catch (const std::exception &e) { caught += e.what() == std::string("thrown"); }
    });
  for (auto &thread : threads) thread.join();
  std::printf("%d %d\n", caught.load(), destroyed.load());
}
