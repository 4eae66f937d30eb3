// Everything at once, for so many seconds: threads that allocate, open and close a plug-in, fork,
// throw, and come and go. `storm SECONDS PLUGIN` prints "right", or what went wrong.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using Clock = std::chrono::steady_clock;
static Clock::time_point end;
static std::atomic<long> wrong{0}, rounds{0};
static bool going() { rounds++; return Clock::now() < end; }
static void expect(bool right, const char *what) { if (!right && wrong++ == 0) std::printf("%s: errno %d\n", what, errno); }

static void allocate() {
  while (going()) {
    std::vector<std::string> strings;
    for (int i = 0; i < 300; i++) strings.emplace_back(i % 200, 'a' + i % 26);
    for (int i = 0; i < 300; i++) expect(strings[i] == std::string(i % 200, 'a' + i % 26), "string");
  }
}

static int throwing(int depth) {
  std::string local(depth, 'x');
  if (depth == 0) throw std::out_of_range("bottom");
  return throwing(depth - 1) + static_cast<int>(local.size());
}

static void throws() {
  while (going()) {
    bool caught = false;
    try { throwing(25); } catch (const std::out_of_range &error) { caught = !std::strcmp(error.what(), "bottom"); }
    expect(caught, "exception");
    errno = 33;
    try { throwing(3); } catch (...) {}
    expect(errno == 33, "errno");
  }
}

static void loads(const char *path) {
  while (going()) {
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    expect(plugin, "dlopen");
    if (!plugin) return;
    auto answer = reinterpret_cast<int (*)(int)>(dlsym(plugin, "answer"));
    expect(answer && answer(1) == 42, "answer");
    expect(dlclose(plugin) == 0, "dlclose");
  }
}

static void forks() {
  while (going()) {
    pid_t pid = fork();
    if (pid == 0) {
      std::string text;
      for (int i = 0; i < 20000; i++) text += static_cast<char>('a' + i % 26);
      _exit(text.size() == 20000 ? 5 : 6);
    }
    int status = 0;
    expect(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5, "child");
    FILE *pipe = popen("echo out; exit 3", "r");
    char line[16] = "";
    expect(pipe && std::fgets(line, sizeof line, pipe) && !std::strcmp(line, "out\n"), "popen");
    expect(pipe && WEXITSTATUS(pclose(pipe)) == 3, "pclose");
    usleep(2000);
  }
}

static void spawns_threads() {
  while (going()) {
    int value = 0;
    std::thread thread([&] { for (int i = 0; i < 50000; i++) value += i % 3; });
    thread.join();
    expect(value == 49999, "thread");
  }
}

int main(int, char **arguments) {
  end = Clock::now() + std::chrono::seconds(std::atoi(arguments[1]));
  std::vector<std::thread> threads;
  threads.emplace_back(allocate);
  threads.emplace_back(allocate);
  threads.emplace_back(throws);
  threads.emplace_back(throws);
  threads.emplace_back(loads, arguments[2]);
  threads.emplace_back(loads, arguments[3]);
  threads.emplace_back(forks);
  threads.emplace_back(spawns_threads);
  for (auto &thread : threads) thread.join();
  std::puts(wrong ? "wrong" : rounds > 1000 ? "right" : "few");
  return wrong ? 1 : 0;
}
