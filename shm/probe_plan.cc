#include "shm/probe_plan.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"

namespace shm {

namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr int kNodesMeetAllMax = 16;  // above it only the first node meets all others

/// A node with cores and how many of its threads to use.
struct Reader {
  size_t node = 0;
  std::vector<int> cpus;
  int cores = 0;    // those that may compute at once: physical, within the quota
  int package = 0;  // socket of the first
};

std::vector<Reader> readers_of(const Topology& topology, double cpu_quota) {
  std::vector<Reader> readers;
  for (size_t node = 0; node < topology.nodes.size(); ++node) {
    const Node& own = topology.nodes[node];
    if (own.cores.empty()) continue;
    readers.push_back({.node = node,
                       .cpus = cpus_of(own),
                       .cores = static_cast<int>(own.cores.size()),
                       .package = own.cores.front().package});
  }
  if (cpu_quota > 0) {
    for (Reader& reader : readers) {
      const int granted = std::max(1, static_cast<int>(std::floor(cpu_quota)));
      reader.cores = std::min(reader.cores, granted);
      reader.cpus.resize(std::min(reader.cpus.size(), static_cast<size_t>(granted)));
    }
  }
  return readers;
}

class Planner {
 public:
  Planner(const Topology& topology, const std::vector<ObtainedPages>& obtained)
      : topology_(topology), obtained_(obtained) {}

  /// Nothing if the node has no such pages.
  void add_bandwidth(Traffic traffic, PageKind pages, const Reader& reader, size_t memory,
                     int threads) {
    if (!has(memory, pages)) return;
    BandwidthCase one = {{.traffic = traffic,
                          .pages = pages,
                          .reader_node = os_index(reader.node),
                          .memory_node = os_index(memory),
                          .threads = threads,
                          .gb_per_s = {}},
                         {}};
    for (int i = 0; i < threads; ++i)
      one.streams.push_back({reader.cpus[static_cast<size_t>(i)], memory});
    plan.bandwidth.push_back(std::move(one));
  }

  void add_own_memory(const Reader& reader) {
    const auto hardware_threads = static_cast<int>(reader.cpus.size());
    std::vector<int> counts = thread_counts(reader.cores);
    if (hardware_threads > reader.cores) counts.push_back(hardware_threads);
    for (const PageKind pages : {PageKind::kSmall, PageKind::kHuge})
      for (const int threads : counts)
        add_bandwidth(Traffic::kRead, pages, reader, reader.node, threads);
    for (const Traffic traffic : {Traffic::kWrite, Traffic::kCopy})
      add_bandwidth(traffic, best_pages(reader.node), reader, reader.node, reader.cores);
  }

  void add_matrix(const std::vector<Reader>& readers) {
    for (const Reader& reader : readers) {
      for (size_t memory = 0; memory < topology_.nodes.size(); ++memory) {
        const PageKind pages = best_pages(memory);
        if (!has(memory, pages)) continue;
        if (memory != reader.node)
          add_bandwidth(Traffic::kRead, pages, reader, memory, reader.cores);
        plan.latency.push_back({{.reader_node = os_index(reader.node),
                                 .memory_node = os_index(memory),
                                 .pages = pages,
                                 .ns = {}},
                                {reader.cpus.front(), memory}});
      }
    }
  }

  /// Every node's cores on their own memory at once; the quota is for all of them together.
  void add_all_nodes(const std::vector<Reader>& readers, double cpu_quota) {
    if (readers.size() < 2) return;
    for (const PageKind pages : {PageKind::kSmall, PageKind::kHuge}) {
      BandwidthCase all = {{.traffic = Traffic::kRead,
                            .pages = pages,
                            .reader_node = kAllNodes,
                            .memory_node = kAllNodes,
                            .threads = 0,
                            .gb_per_s = {}},
                           {}};
      bool complete = true;
      for (const Reader& reader : readers) {
        complete = complete && has(reader.node, pages);
        int threads = reader.cores;
        if (cpu_quota > 0) {
          const double share = std::floor(cpu_quota / static_cast<double>(readers.size()));
          threads = std::clamp(static_cast<int>(share), 1, threads);
        }
        for (int i = 0; i < threads; ++i)
          all.streams.push_back({reader.cpus[static_cast<size_t>(i)], reader.node});
      }
      all.figure.threads = static_cast<int>(all.streams.size());
      if (complete) plan.bandwidth.push_back(std::move(all));
    }
  }

  void add_line(int cpu_a, int cpu_b, const Reader& a, const Reader& b, Nearness nearness) {
    plan.lines.push_back({.cpu_a = cpu_a,
                          .cpu_b = cpu_b,
                          .node_a = os_index(a.node),
                          .node_b = os_index(b.node),
                          .nearness = nearness,
                          .ns = {}});
  }

  /// The first core of a node with the nearest and the farthest one of each kind.
  void add_lines_within(const Reader& reader) {
    const std::vector<Core>& cores = topology_.nodes[reader.node].cores;
    const int first = cores.front().cpus.front();
    if (cores.front().cpus.size() > 1)
      add_line(first, cores.front().cpus[1], reader, reader, Nearness::kSameCore);
    for (const Nearness kind : {Nearness::kSameCache, Nearness::kSameNode}) {
      std::vector<int> others;
      for (size_t i = 1; i < cores.size(); ++i) {
        const bool same = cores[i].last_cache >= 0 && cores[i].last_cache == cores[0].last_cache;
        if (same == (kind == Nearness::kSameCache)) others.push_back(cores[i].cpus.front());
      }
      if (!others.empty()) add_line(first, others.front(), reader, reader, kind);
      if (others.size() > 1) add_line(first, others.back(), reader, reader, kind);
    }
  }

  void add_lines(const std::vector<Reader>& readers) {
    for (const Reader& reader : readers) add_lines_within(reader);
    const size_t meeting = readers.size() > kNodesMeetAllMax ? 1 : readers.size();
    for (size_t a = 0; a < meeting; ++a) {
      for (size_t b = a + 1; b < readers.size(); ++b) {
        add_line(readers[a].cpus.front(), readers[b].cpus.front(), readers[a], readers[b],
                 readers[a].package == readers[b].package ? Nearness::kSamePackage
                                                          : Nearness::kOtherPackage);
      }
    }
  }

  void add_exchanges(bool simulated, ProbeDepth depth) {
    constexpr uint64_t kLargest = 256 * 1024;
    size_t most = 0;
    for (const RankPlacement& rank : plan.placement.ranks) most = std::max(most, rank.cpus.size());
    const auto ranks = static_cast<int>(plan.placement.ranks.size());
    const auto add = [&](int of_ranks, size_t threads, uint64_t bytes) {
      plan.exchanges.push_back({{.ranks = of_ranks,
                                 .threads = static_cast<int>(threads),
                                 .simulated = simulated,
                                 .gather_bytes = bytes,
                                 .ns = {}},
                                of_ranks == ranks});
    };
    if (ranks > 1) add(1, plan.placement.ranks.front().cpus.size(), 0);
    add(ranks, most, 0);
    for (uint64_t bytes = 256; bytes <= kLargest; bytes *= depth == ProbeDepth::kQuick ? 4 : 2)
      add(ranks, most, bytes);
  }

  ProbePlan plan;

 private:
  int os_index(size_t node) const { return topology_.nodes[node].os_index; }
  bool has(size_t node, PageKind pages) const {
    if (node >= obtained_.size()) return false;
    return pages == PageKind::kHuge ? obtained_[node].huge : obtained_[node].small;
  }
  PageKind best_pages(size_t node) const {
    return has(node, PageKind::kHuge) ? PageKind::kHuge : PageKind::kSmall;
  }

  const Topology& topology_;
  const std::vector<ObtainedPages>& obtained_;
};

/// Bytes of the last-level caches whose cores are on a node.
uint64_t cache_bytes_of(const Topology& topology, const Node& node) {
  std::vector<int> caches;
  for (const Core& core : node.cores) caches.push_back(core.last_cache);
  std::sort(caches.begin(), caches.end());
  caches.erase(std::unique(caches.begin(), caches.end()), caches.end());
  uint64_t bytes = 0;
  for (const int cache : caches)
    if (cache >= 0) bytes += topology.last_cache_bytes[static_cast<size_t>(cache)];
  return bytes;
}

}  // namespace

base::Result<std::vector<uint64_t>> plan_memory(const Topology& topology, const MachineFacts& facts,
                                                const ProbeOptions& options) {
  uint64_t caches_most = 0;  // any node's cores may read any memory
  for (const Node& node : topology.nodes)
    caches_most = std::max(caches_most, cache_bytes_of(topology, node));
  const uint64_t least = options.depth == ProbeDepth::kQuick ? 128 * kMib : 256 * kMib;
  const uint64_t wanted =
      options.node_bytes > 0 ? options.node_bytes : std::max(least, 3 * caches_most);
  uint64_t available = facts.available_bytes;
  if (facts.memory_limit_bytes > 0)
    available =
        available == 0 ? facts.memory_limit_bytes : std::min(available, facts.memory_limit_bytes);
  const uint64_t shares = 10 * std::max<uint64_t>(topology.nodes.size(), 1);
  std::vector<uint64_t> bytes;
  for (size_t i = 0; i < topology.nodes.size(); ++i) {
    uint64_t free = i < facts.nodes.size() ? facts.nodes[i].free_bytes : 0;
    if (free == 0) free = topology.nodes[i].memory_bytes;
    uint64_t limit = free / 10;
    if (available > 0) limit = std::min(limit, available / shares);
    uint64_t own = wanted;
    if (options.node_bytes == 0) {
      own = std::min(wanted, limit) / (2 * kMib) * (2 * kMib);
    } else if (wanted > 3 * limit) {
      return base::Error{base::Code::kNoSpace,
                         base::cat("node ", topology.nodes[i].os_index, " has ", free / kMib,
                                   " MiB free, too little to measure on ", wanted / kMib,
                                   " MiB, which are needed twice and more; give at most --mib ",
                                   3 * limit / kMib)};
    }
    // A node without memory, or with next to none, is not measured.
    bytes.push_back(own < 4 * kMib && options.node_bytes == 0 ? 0 : own);
  }
  return bytes;
}

base::Result<ProbePlan> plan_probe(const Topology& topology,
                                   const std::vector<ObtainedPages>& obtained, double cpu_quota,
                                   const ProbeOptions& options) {
  const std::vector<Reader> readers = readers_of(topology, cpu_quota);
  const auto usable = static_cast<int>(readers.size());
  // On one node two simulated ranks at least show what meeting costs.
  const int ranks = options.ranks > 0 ? options.ranks : std::max(usable, 2);
  Planner planner(topology, obtained);
  ASSIGN_OR_RETURN(planner.plan.placement,
                   cpus_for_ranks(topology, {.ranks = ranks,
                                             .threads_per_rank = options.threads_per_rank,
                                             .simulate = ranks > usable,
                                             .reserve_cores = 1,
                                             .cpu_quota = cpu_quota}));
  for (const Reader& reader : readers) planner.add_own_memory(reader);
  planner.add_all_nodes(readers, cpu_quota);
  planner.add_matrix(readers);
  planner.add_lines(readers);
  planner.add_exchanges(ranks > usable, options.depth);
  return std::move(planner.plan);
}

std::vector<int> cpus_of(const Node& node) {
  std::vector<int> cpus;
  size_t threads_most = 1;
  for (size_t thread = 0; thread < threads_most; ++thread) {
    for (const bool efficient : {false, true}) {
      for (const Core& core : node.cores) {
        threads_most = std::max(threads_most, core.cpus.size());
        if (core.efficient == efficient && thread < core.cpus.size())
          cpus.push_back(core.cpus[thread]);
      }
    }
  }
  return cpus;
}

std::vector<int> thread_counts(int all) {
  std::vector<int> counts;
  for (int power = 1; power < all; power *= 2) {
    counts.push_back(power);
    if (power > 1 && power * 3 / 2 < all) counts.push_back(power * 3 / 2);
  }
  counts.push_back(all);
  return counts;
}

}  // namespace shm
