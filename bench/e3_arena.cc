// How fast is an arena filled, read and attached in a directory, in which pages, on which node?
//
// A child process makes the arena, fills it, reads it and seals it; it is then killed, and this
// process attaches to what is left, as a restarted worker would.
// usage: e3_arena [--node N] [--cpu N] DIR MIB
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/clock.h"
#include "shm/arena.h"
#include "shm/arena_dir.h"
#include "shm/pin.h"
#include "shm/probe_loops.h"

namespace {

struct Options {
  std::string directory;
  uint64_t bytes = 0;
  int node = -1;
  int cpu = 0;
};

double now_s() {
  return static_cast<double>(base::SteadyClock().now()) / 1e9;
}

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "e3_arena: %s\n", message.c_str());
  std::exit(1);
}

/// Best of five, GB/s of one thread.
double read_rate(const std::byte* data, size_t bytes, uint64_t expected) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const double begin = now_s();
    const uint64_t sum = shm::read_words(data, bytes);
    best = std::min(best, now_s() - begin);
    if (sum != expected) fail("the arena does not hold what was written");
  }
  return static_cast<double>(bytes) / best / 1e9;
}

constexpr unsigned char kFill = 7;
constexpr uint64_t kFillWord = 0x0707070707070707;

void print_placement(const shm::Region& region, int node) {
  const auto report = shm::page_report(region.data());
  const shm::PageNodes nodes = shm::page_nodes(region.data(), region.bytes());
  std::printf("huge %.0f %%", report.ok() ? 100.0 * static_cast<double>(report->huge_bytes) /
                                                static_cast<double>(region.bytes())
                                          : -1.0);
  const char* const binds[] = {"not asked", "bound", "denied"};
  std::printf("  bind: %s", binds[static_cast<int>(region.bind())]);
  if (!nodes.permitted) std::printf("  move_pages: denied");
  for (size_t i = 0; i < nodes.pages_on_node.size(); ++i) {
    std::printf("  node %zu: %llu pages", i,
                static_cast<unsigned long long>(nodes.pages_on_node[i]));
  }
  if (node >= 0 && nodes.permitted) {
    std::printf("  on node %d: %.2f %%", node, 100 * nodes.share_on(node));
  }
  std::printf("\n");
}

/// The loader's life, until it is killed.
void load(const Options& options, int ready) {
  shm::ArenaPlan plan;
  const auto offset =
      plan.reserve({.name = "e3", .rows = 1, .row_length = options.bytes, .bytes = options.bytes});
  if (!offset.ok()) fail(offset.error().message);
  double begin = now_s();
  auto arena = shm::Arena::create(options.directory, "e3", plan, {.node = options.node});
  if (!arena.ok()) fail(arena.error().message);
  std::printf("create and reserve %.3f s", now_s() - begin);
  begin = now_s();
  std::memset(arena->data(*offset), kFill, options.bytes);
  const double bytes = static_cast<double>(options.bytes);
  std::printf("  fill %.2f GB/s", bytes / (now_s() - begin) / 1e9);
  std::printf("  read %.1f GB/s",
              read_rate(arena->data(*offset), options.bytes, options.bytes / 8 * kFillWord));
  begin = now_s();
  const auto sealed = arena->seal();
  if (!sealed.ok()) fail(sealed.error().message);
  std::printf("  seal with checksum %.1f GB/s\n", bytes / (now_s() - begin) / 1e9);
  print_placement(arena->region(), options.node);
  std::fflush(stdout);
  if (write(ready, "r", 1) == 1) ::pause();
  std::exit(1);
}

void attach(const Options& options) {
  double begin = now_s();
  const auto arena = shm::Arena::attach(options.directory, "e3");
  if (!arena.ok()) fail(arena.error().message);
  const double mapped = now_s() - begin;
  const std::byte* data = arena->data(0);
  unsigned sum = 0;
  for (size_t i = 0; i < options.bytes; i += 4096) sum += std::to_integer<unsigned>(data[i]);
  if (sum != options.bytes / 4096 * kFill) fail("a page is not what was written");
  std::printf("after kill -9: attach %.6f s, every page touched %.3f s", mapped, now_s() - begin);
  std::printf("  read %.1f GB/s", read_rate(data, options.bytes, options.bytes / 8 * kFillWord));
  begin = now_s();
  const auto verified = arena->verify();
  std::printf("  verify %s %.1f GB/s\n", verified.ok() ? "ok" : verified.error().message.c_str(),
              static_cast<double>(options.bytes) / (now_s() - begin) / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--node" && i + 1 < argc)
      options.node = std::atoi(argv[++i]);
    else if (argument == "--cpu" && i + 1 < argc)
      options.cpu = std::atoi(argv[++i]);
    else if (options.directory.empty())
      options.directory = argument;
    else
      options.bytes = std::strtoull(argument.c_str(), nullptr, 10) << 20;
  }
  if (options.bytes == 0) {
    std::fprintf(stderr, "usage: e3_arena [--node N] [--cpu N] DIR MIB\n");
    return 2;
  }
  const auto dir = shm::choose_arena_dir({.directory = options.directory});
  if (!dir.ok()) fail(dir.error().message);
  options.directory = dir->directory;
  std::printf("%s (%s), %llu MiB\n", dir->directory.c_str(), dir->file_system.c_str(),
              static_cast<unsigned long long>(options.bytes >> 20));
  std::fflush(stdout);
  shm::remove_leftovers(options.directory, shm::Kept::kRemove);
  int ready[2];
  if (pipe(ready) != 0) fail("no pipe");
  (void)shm::pin_thread(options.cpu);
  const pid_t child = fork();
  if (child == 0) load(options, ready[1]);
  close(ready[1]);
  char word;
  const bool loaded = read(ready[0], &word, 1) == 1;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (loaded) attach(options);
  const shm::Leftovers removed = shm::remove_leftovers(options.directory, shm::Kept::kRemove);
  std::printf("removed %d arena of %llu MiB\n", removed.arenas,
              static_cast<unsigned long long>(removed.bytes >> 20));
  return loaded ? 0 : 1;
}
