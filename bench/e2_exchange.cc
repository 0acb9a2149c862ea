// E2: what does the all-gather between processes cost a token?
//
// For 2, 4 and 8 ranks and gathers of 8 to 64 KiB: 6 gathers x 48 layers a token, as a MoE model
// has them at most. Every rank writes its slice and reads all slices, as the maths would. Ranks are
// processes pinned to CPUs in turn; "busy" adds a process that computes all the time on the last
// CPU. usage: e2_exchange [--tokens N] [--spin PAUSES] [--quick]
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "shm/file.h"
#include "shm/local_group.h"
#include "shm/pin.h"
#include "shm/probe_samples.h"
#include "shm/topology.h"

namespace {

constexpr int kGathersPerToken = 6 * 48;
constexpr int kWarmUpTokens = 5;

struct Options {
  int tokens = 0;  // 0: as many as take about a second
  int spin = -1;   // -1: the default, and the one for shared cores
};

struct Case {
  int ranks = 2;
  int threads = 1;
  size_t gather_bytes = 8192;  // of all slices together
  bool busy = false;
};

struct Figures {
  double p50_us = 0, p99_us = 0;
  double sleeps = 0;  // of rank 0, per token
};

double now_us() {
  return static_cast<double>(base::SteadyClock().now()) / 1e3;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  const auto topology = shm::read_topology({});
  if (!topology.ok()) return {0};
  for (const shm::Node& node : topology->nodes) {
    for (const shm::Core& core : node.cores) cpus.push_back(core.cpus.front());
  }
  return cpus.empty() ? std::vector<int>{0} : cpus;
}

void pin_to(const std::vector<int>& cpus, size_t index) {
  (void)shm::pin_thread(cpus[index % cpus.size()]);
}

/// One thread's token: its part of the slices written, all slices read.
bool run_token(shm::ShmExchange& exchange, const Case& test, int thread, uint64_t& sequence,
               uint64_t& sum) {
  const size_t words = test.gather_bytes / static_cast<size_t>(test.ranks) / sizeof(uint64_t);
  const auto threads = static_cast<size_t>(test.threads);
  const size_t begin = static_cast<size_t>(thread) * words / threads;
  const size_t end = (static_cast<size_t>(thread) + 1) * words / threads;
  for (int gather = 0; gather < kGathersPerToken; ++gather, ++sequence) {
    auto* out = reinterpret_cast<uint64_t*>(exchange.outgoing(sequence));
    for (size_t i = begin; i < end; ++i) out[i] = sequence + i;
    if (exchange.arrive_and_wait(sequence, words * sizeof(uint64_t)) != base::Wait::kOk) {
      return false;
    }
    for (int rank = 0; rank < test.ranks; ++rank) {
      const auto* in = reinterpret_cast<const uint64_t*>(exchange.incoming(sequence, rank));
      for (size_t i = 0; i < words; ++i) sum += in[i];
    }
  }
  return true;
}

/// All tokens of one rank; times of thread 0 go to `times` if given.
void run_rank(shm::ShmExchange& exchange, const Case& test, int tokens,
              const std::vector<int>& cpus, std::vector<double>* times) {
  std::vector<std::thread> threads;
  const auto body = [&](int thread) {
    pin_to(cpus, static_cast<size_t>(exchange.rank() * test.threads + thread));
    uint64_t sequence = 0, sum = 0;
    for (int token = 0; token < tokens + kWarmUpTokens; ++token) {
      const double begin = now_us();
      if (!run_token(exchange, test, thread, sequence, sum)) return;
      if (thread == 0 && times != nullptr && token >= kWarmUpTokens) {
        times->push_back(now_us() - begin);
      }
    }
    // Keeps the reads: the sum must be used.
    if (sum == 1) std::printf(" ");
  };
  for (int thread = 1; thread < test.threads; ++thread) threads.emplace_back(body, thread);
  body(0);
  for (std::thread& thread : threads) thread.join();
}

/// A process that computes until it is killed.
pid_t start_foreign_load(const std::vector<int>& cpus) {
  const pid_t child = fork();
  if (child != 0) return child;
  pin_to(cpus, cpus.size() - 1);
  std::atomic<uint64_t> work{0};
  while (true) work.fetch_add(1, std::memory_order_relaxed);
}

Figures measure(const Case& test, int tokens, int spin) {
  const auto ranks = static_cast<size_t>(test.ranks);
  auto group = shm::LocalGroup::create({.shape = {.ranks = test.ranks,
                                                  .threads = test.threads,
                                                  .slice_bytes_max = test.gather_bytes / ranks},
                                        .record_bytes_max = 64,
                                        .wait = {.spin_pauses = spin}});
  if (!group.ok()) {
    std::fprintf(stderr, "e2_exchange: %s\n", group.error().message.c_str());
    std::exit(1);
  }
  const std::vector<int> cpus = allowed_cpus();
  const pid_t load = test.busy ? start_foreign_load(cpus) : 0;
  // The mapping is shared, so the exchange objects that fork copies still meet in one memory.
  std::vector<pid_t> children;
  for (int rank = 1; rank < test.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      run_rank((*group)->exchange(rank), test, tokens, cpus, nullptr);
      _exit(0);
    }
    children.push_back(child);
  }
  std::vector<double> times;
  // A thread of its own, so that pinning does not stay with the program.
  std::thread([&] { run_rank((*group)->exchange(0), test, tokens, cpus, &times); }).join();
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  if (load > 0) {
    kill(load, SIGKILL);
    waitpid(load, nullptr, 0);
  }
  std::sort(times.begin(), times.end());
  if (times.empty()) return {};
  return {.p50_us = times[times.size() / 2],
          .p99_us = times[times.size() * 99 / 100],
          .sleeps =
              static_cast<double>((*group)->exchange(0).stats().sleeps) / (tokens + kWarmUpTokens)};
}

/// Nanoseconds until a store of one CPU is seen by another.
double hand_over_ns() {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) return 0;
  constexpr int kBatches = 400;
  const std::atomic<bool> stop{false};
  const auto sample = shm::sample_line(cpus[0], cpus[1], kBatches, stop);
  return sample.ok() ? *sample : 0;
}

/// How busy others keep the machine, for the reader of the figures.
std::string load_average() {
  const auto text = shm::read_text("/proc/loadavg");
  return text.ok() ? text->substr(0, text->find(' ')) : "unknown";
}

/// A token's exchange between two sockets, from this one's. Measured with lines that cost 60 and
/// 260 ns: a gather without data takes three hand-overs, a line of data a sixth of one.
double between_sockets_us(const Case& test, double local_us, double local_ns) {
  constexpr double kRemoteNs = 400, kHandOvers = 3, kLinesInFlight = 6;
  const double lines = static_cast<double>(test.gather_bytes) / 2 / 64;
  const double more_ns = (kRemoteNs - local_ns) * (kHandOvers + lines / kLinesInFlight);
  return local_us + kGathersPerToken * more_ns / 1e3;
}

void report(const Case& test, const Options& options) {
  const auto cpu_count = static_cast<int>(allowed_cpus().size());
  const bool shared_cores = test.ranks * test.threads > cpu_count;
  int spin = shared_cores ? shm::kSpinPausesOversubscribed : shm::WaitOptions{}.spin_pauses;
  if (options.spin >= 0) spin = options.spin;
  int tokens = options.tokens;
  if (tokens == 0) {
    const Figures trial = measure(test, 10, spin);
    tokens = std::clamp(static_cast<int>(1e6 / std::max(trial.p50_us, 1.0)), 50, 2000);
  }
  const double local_ns = hand_over_ns();
  const Figures figures = measure(test, tokens, spin);
  std::printf("| %d x %d | %zu KiB | %s | %d | %.0f | %.0f | %.0f | %.2f | %.0f |", test.ranks,
              test.threads, test.gather_bytes / 1024, test.busy ? "busy" : "quiet", spin, local_ns,
              figures.p50_us, figures.p99_us, figures.p50_us / kGathersPerToken, figures.sleeps);
  if (test.ranks == 2 && test.threads == 1 && !test.busy) {
    std::printf(" %.0f |\n", between_sockets_us(test, figures.p50_us, local_ns));
  } else {
    std::printf(" |\n");
  }
  std::fflush(stdout);
}

void report_all(const Options& options) {
  for (const bool busy : {false, true}) {
    for (const int ranks : {2, 4, 8}) {
      for (const size_t kib : {8, 16, 32, 64}) {
        report({.ranks = ranks, .gather_bytes = kib * 1024, .busy = busy}, options);
      }
    }
    report({.ranks = 1, .threads = 2, .busy = busy}, options);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  Case one;
  bool only_one = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const int number = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    only_one = only_one || (argument != "--tokens" && argument != "--spin");
    if (argument == "--busy") {
      one.busy = true;
      continue;
    }
    ++i;
    if (argument == "--tokens") {
      options.tokens = number;
    } else if (argument == "--spin") {
      options.spin = number;
    } else if (argument == "--ranks" && number >= 1 && number <= 64) {
      one.ranks = number;
    } else if (argument == "--threads" && number >= 1 && number <= 64) {
      one.threads = number;
    } else if (argument == "--kib" && number >= 1) {
      one.gather_bytes = static_cast<size_t>(number) * 1024;
    } else {
      std::fprintf(stderr, "e2_exchange: bad argument %s; its first lines say what it takes\n",
                   argument.c_str());
      return 2;
    }
  }
  std::printf("%zu CPUs, load %s, %d gathers a token\n", allowed_cpus().size(),
              load_average().c_str(), kGathersPerToken);
  std::printf(
      "| ranks x threads | gather | machine | spin | line ns | p50 us | p99 us | us a gather | "
      "sleeps | two sockets us |\n|---|---|---|---|---|---|---|---|---|---|\n");
  if (only_one) {
    report(one, options);
  } else {
    report_all(options);
  }
  return 0;
}
