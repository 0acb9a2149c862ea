#include "cli/bench_ceiling.h"

#include <algorithm>
#include <barrier>

#include "base/clock.h"
#include "shm/pin.h"
#include "shm/probe_loops.h"
#include "shm/probe_team.h"

namespace cli {

namespace {

// Larger than caches by far, and read in some milliseconds.
constexpr size_t kBytesPerThread = size_t{192} << 20;
constexpr size_t kBytesMax = size_t{2} << 30;
constexpr int kPasses = 9;

/// One thread for each CPU: more gain nothing.
std::vector<int> distinct(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

}  // namespace

base::Result<ReadCeiling> ReadCeiling::create(const shm::Placement& placement,
                                              shm::PageKind pages) {
  ReadCeiling ceiling;
  ceiling.pages_ = pages;
  size_t threads = 0;
  for (const shm::RankPlacement& rank : placement.ranks) threads += distinct(rank.cpus).size();
  const size_t each = std::min(kBytesPerThread, kBytesMax / std::max<size_t>(threads, 1));
  const std::atomic<bool> never{false};
  std::vector<int> taken;
  for (const shm::RankPlacement& rank : placement.ranks) {
    std::vector<int> cpus;
    for (int cpu : distinct(rank.cpus)) {
      if (cpu < 0) cpu = std::max(shm::current_cpu(), 0);
      if (std::find(taken.begin(), taken.end(), cpu) == taken.end()) cpus.push_back(cpu);
    }
    if (cpus.empty()) continue;  // simulated nodes that share their CPUs
    taken.insert(taken.end(), cpus.begin(), cpus.end());
    ASSIGN_OR_RETURN(
        shm::ProbeMemory memory,
        shm::ProbeMemory::create(
            {.bytes = each * cpus.size(), .os_node = rank.os_node, .pages = pages, .cpus = cpus},
            never));
    if (!memory.as_asked()) ceiling.pages_ = shm::PageKind::kSmall;
    for (size_t i = 0; i < cpus.size(); i++) {
      const auto part = memory.part(i, cpus.size());
      ceiling.parts_.push_back({.cpu = cpus[i], .data = part.data(), .bytes = part.size()});
    }
    ceiling.memory_.push_back(std::move(memory));
  }
  return ceiling;
}

base::Result<double> ReadCeiling::measure() const {
  std::vector<int> cpus;
  size_t bytes = 0;
  for (const Part& part : parts_) {
    cpus.push_back(part.cpu);
    bytes += part.bytes;
  }
  // Marks are written between passes by whoever comes last, while all others wait.
  std::vector<base::TimeNs> marks;
  marks.reserve(kPasses + 1);
  const base::SteadyClock clock;
  const auto mark = [&]() noexcept { marks.push_back(clock.now()); };
  std::barrier between(static_cast<std::ptrdiff_t>(parts_.size()), mark);
  RETURN_IF_ERROR(shm::run_pinned(cpus, [&](size_t thread) {
    between.arrive_and_wait();
    for (int pass = 0; pass < kPasses; pass++) {
      shm::read_words(parts_[thread].data, parts_[thread].bytes);
      between.arrive_and_wait();
    }
  }));
  std::vector<double> samples;
  for (size_t i = 1; i < marks.size(); i++)
    samples.push_back(static_cast<double>(bytes) / static_cast<double>(marks[i] - marks[i - 1]));
  return shm::spread_of(std::move(samples)).median;
}

}  // namespace cli
