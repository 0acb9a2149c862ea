#include "shm/probe.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "shm/machine_facts.h"
#include "shm/pin.h"
#include "shm/probe_loops.h"
#include "shm/probe_memory.h"
#include "shm/probe_samples.h"
#include "shm/probe_team.h"

namespace shm {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

Topology this_machine() {
  auto topology = read_topology({});
  EXPECT_TRUE(topology.ok()) << topology.error().message;
  return topology.ok() ? *topology : Topology{};
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (const Node& node : this_machine().nodes)
    for (const int cpu : cpus_of(node)) cpus.push_back(cpu);
  return cpus;
}

TEST(ReadWords, SumsEveryWord) {
  alignas(64) uint64_t words[1000];
  uint64_t expected = 0;
  for (const size_t count : {0u, 1u, 31u, 32u, 33u, 999u, 1000u}) {
    expected = 0;
    for (size_t i = 0; i < 1000; ++i) words[i] = (i + 1) * 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < count; ++i) expected += words[i];
    EXPECT_EQ(read_words(reinterpret_cast<const std::byte*>(words), count * 8), expected) << count;
  }
}

TEST(Chain, ComesByEveryLineOnceBeforeItComesBack) {
  for (const int bits : {1, 2, 5, 10, 13}) {
    const size_t lines = size_t{1} << bits;
    std::vector<std::byte> memory(lines * kLineBytes);
    // In two parts, as two threads would.
    write_chain(memory.data(), bits, 0, lines / 3);
    write_chain(memory.data(), bits, lines / 3, lines);
    std::set<const std::byte*> seen;
    const std::byte* at = memory.data();
    for (size_t hop = 0; hop < lines; ++hop) {
      EXPECT_TRUE(seen.insert(at).second) << "came twice to " << at - memory.data();
      at = chase(at, 1);
      ASSERT_GE(at, memory.data());
      ASSERT_LT(at, memory.data() + memory.size());
    }
    EXPECT_EQ(at, memory.data());
    EXPECT_EQ(chase(at, 5), chase(chase(at, 2), 3));
  }
}

// A prefetcher follows strides; neighbours of the walk must not lie beside each other.
TEST(Chain, HasNoStride) {
  constexpr int kBits = 16;
  std::set<size_t> strides;
  for (size_t step = 0; step < 1000; ++step)
    strides.insert(chain_line(step + 1, kBits) - chain_line(step, kBits));
  EXPECT_GT(strides.size(), 500u);
}

TEST(RunPinned, RunsEveryPartOnItsCpu) {
  std::vector<int> cpus = allowed_cpus();
  cpus.push_back(cpus.front());  // a CPU may come twice
  std::vector<int> seen(cpus.size(), -1);
  ASSERT_TRUE(run_pinned(cpus, [&](size_t i) { seen[i] = current_cpu(); }).ok());
  EXPECT_EQ(seen, cpus);
}

TEST(RunPinned, RunsNothingWhenACpuIsNotAllowed) {
  const std::vector<int> cpus = {allowed_cpus().front(), 4000};
  std::atomic<int> runs{0};
  const base::Status status = run_pinned(cpus, [&](size_t) { ++runs; });
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("4000"), std::string::npos);
  EXPECT_EQ(runs, 0);
}

TEST(ProbeMemory, ReportsThePagesItGot) {
  const std::atomic<bool> stop{false};
  const int node = this_machine().nodes.front().os_index;
  for (const PageKind pages : {PageKind::kSmall, PageKind::kHuge}) {
    auto memory = ProbeMemory::create(
        {.bytes = 8 * kMib, .os_node = node, .pages = pages, .cpus = allowed_cpus()}, stop);
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    const MemoryFigure figure = memory->figure();
    EXPECT_EQ(figure.bytes, 8 * kMib);
    EXPECT_EQ(figure.asked, pages);
    EXPECT_LE(figure.huge_bytes, figure.bytes);
    if (pages == PageKind::kSmall) {
      EXPECT_EQ(figure.huge_bytes, 0u);
    }
    EXPECT_EQ(memory->as_asked(), pages == PageKind::kHuge ? figure.huge_bytes == figure.bytes
                                                           : figure.huge_bytes == 0);
    if (figure.verified_by == "move_pages" && figure.bound) {
      EXPECT_EQ(figure.share_on_node, 1);
    }
  }
}

TEST(ProbeMemory, PartsCoverItWithoutOverlap) {
  const std::atomic<bool> stop{false};
  auto memory = ProbeMemory::create({.bytes = 6 * kMib, .cpus = allowed_cpus()}, stop);
  ASSERT_TRUE(memory.ok());
  for (const size_t count : {1u, 2u, 3u, 7u, 64u, 4096u}) {
    const std::byte* next = memory->data();
    for (size_t i = 0; i < count; ++i) {
      const std::span<std::byte> part = memory->part(i, count);
      EXPECT_EQ(part.data(), next);
      EXPECT_GE(part.size(), 128u);
      next = part.data() + part.size();
    }
    EXPECT_EQ(next, memory->data() + memory->bytes());
  }
}

void expect_measured(const Spread& spread, const char* what) {
  EXPECT_GT(spread.samples, 0) << what;
  EXPECT_GT(spread.min, 0) << what;
  EXPECT_LE(spread.min, spread.median) << what;
  EXPECT_LE(spread.median, spread.max) << what;
  EXPECT_TRUE(std::isfinite(spread.max)) << what;
}

TEST(Probe, MeasuresEverythingOnAFewMebibytes) {
  const Topology topology = this_machine();
  const std::atomic<bool> stop{false};
  int percent = -1;
  bool falls = false;
  const auto profile = run_probe(topology, read_machine_facts(topology),
                                 {.depth = ProbeDepth::kQuick, .node_bytes = 4 * kMib},
                                 {.stop = stop, .on_progress = [&](int now) {
                                    falls = falls || now < percent;
                                    percent = now;
                                  }});
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_FALSE(falls);
  EXPECT_GT(profile->cpu_share, 0);
  EXPECT_LE(profile->cpu_share, 1);
  EXPECT_EQ(percent, 100);
  EXPECT_TRUE(profile->quick);
  EXPECT_EQ(profile->fingerprint.size(), 16u);
  EXPECT_FALSE(profile->bandwidth.empty());
  EXPECT_FALSE(profile->latency.empty());
  EXPECT_FALSE(profile->exchanges.empty());
  for (const BandwidthFigure& one : profile->bandwidth) expect_measured(one.gb_per_s, "bandwidth");
  for (const LatencyFigure& one : profile->latency) expect_measured(one.ns, "latency");
  for (const LineFigure& one : profile->lines) expect_measured(one.ns, "line");
  for (const ExchangeFigure& one : profile->exchanges) expect_measured(one.ns, "exchange");
  if (allowed_cpus().size() > 1) {
    EXPECT_FALSE(profile->lines.empty());
  }
}

/// As taskset does before a program starts; also for threads that a race detector may have.
void allow(const cpu_set_t& cpus) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    sched_setaffinity(std::stoi(task.path().filename().string()), sizeof cpus, &cpus);
}

// The probe runs under taskset: only that CPU may appear anywhere.
TEST(Probe, ObeysAllowedCpus) {
  const int only = allowed_cpus().back();
  cpu_set_t before, alone;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&alone);
  CPU_SET(static_cast<size_t>(only), &alone);
  allow(alone);
  const Topology topology = this_machine();
  const std::atomic<bool> stop{false};
  const auto profile =
      run_probe(topology, read_machine_facts(topology),
                {.depth = ProbeDepth::kQuick, .node_bytes = 4 * kMib}, {.stop = stop});
  allow(before);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_TRUE(profile->lines.empty());
  for (const BandwidthFigure& one : profile->bandwidth) EXPECT_EQ(one.threads, 1);
  for (const NodeFacts& node : profile->facts.nodes) {
    if (node.cores > 0) {
      EXPECT_EQ(node.cpus, cpu_list({only}));
    }
  }
}

TEST(Probe, EndsWhenToldTo) {
  const Topology topology = this_machine();
  std::atomic<bool> stop{false};
  int calls = 0;
  const auto profile = run_probe(topology, read_machine_facts(topology), {.node_bytes = 4 * kMib},
                                 {.stop = stop, .on_progress = [&](int) {
                                    ++calls;
                                    stop = true;
                                  }});
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.error().code, base::Code::kCancelled);
  EXPECT_EQ(calls, 1);
}

// Stopped from the beginning, every sample returns, whoever waits for whom.
TEST(Probe, SamplesReturnWhenStopped) {
  const std::atomic<bool> stop{true};
  const std::vector<int> cpus = allowed_cpus();
  auto memory = ProbeMemory::create({.bytes = 4 * kMib, .cpus = cpus}, stop);
  ASSERT_TRUE(memory.ok());
  const StreamSlice slices[] = {{cpus[0], memory->part(0, 1)}};
  EXPECT_TRUE(sample_bandwidth(slices, {.window_ns = int64_t{1} << 60}, stop).ok());
  if (cpus.size() > 1) {
    EXPECT_TRUE(sample_line(cpus[0], cpus[1], 1'000'000, stop).ok());
  }
  auto rig = ExchangeRig::create(
      {.ranks = {{-1, {cpus.front()}}, {-1, {cpus.back()}}}, .gather_bytes_max = 4096}, stop);
  ASSERT_TRUE(rig.ok());
  EXPECT_TRUE((*rig)->sample({.gather_bytes = 256, .gathers = 1 << 30}, stop).ok());
}

TEST(Notes, TellWhatAReaderMustKnow) {
  MachineProfile profile;
  profile.facts.nodes.resize(2);
  profile.facts.nodes[0].cores = profile.facts.nodes[1].cores = 4;
  profile.facts.nodes[1].os_index = 1;
  profile.facts.numa_balancing = "0";
  EXPECT_TRUE(notes_on(profile).empty());

  profile.cpu_share = 0.25;
  profile.facts.numa_balancing = "1";
  profile.facts.governor = "powersave";
  profile.facts.transparent_huge_pages = "never";
  profile.memory = {{.node = 1,
                     .asked = PageKind::kHuge,
                     .bytes = 100,
                     .huge_bytes = 50,
                     .page_bytes = 4096,
                     .bound = false,
                     .verified_by = "numa_maps",
                     .share_on_node = 0.25}};
  BandwidthFigure slow = {.traffic = Traffic::kRead,
                          .pages = PageKind::kSmall,
                          .reader_node = 0,
                          .memory_node = 0,
                          .threads = 4,
                          .gb_per_s = {100, 10, 110, 3}};
  BandwidthFigure fast = slow;
  fast.reader_node = fast.memory_node = 1;
  fast.gb_per_s.max = 220;
  profile.bandwidth = {slow, fast};
  std::string all;
  for (const std::string& note : notes_on(profile)) all += note + "\n";
  for (const char* part : {"only 50 % of the memory asked for on node 1 came in huge pages",
                           "'never'", "only 25 % of the memory asked for on node 1 is there",
                           "refuses mbind", "NUMA balancing is on", "'powersave'",
                           "node 0 reads its memory at 50 %", "got only 25 % of their CPUs"})
    EXPECT_NE(all.find(part), std::string::npos) << part << "\nin\n" << all;
}

}  // namespace
}  // namespace shm
