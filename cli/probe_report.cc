#include "cli/probe_report.h"

#include <algorithm>
#include <cstdio>

#include "base/cat.h"

namespace cli {

namespace {

using shm::BandwidthFigure;
using shm::MachineProfile;
using shm::PageKind;
using shm::Spread;
using shm::Traffic;
using Rows = std::vector<std::vector<std::string>>;

std::string fixed(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

/// Three digits that matter.
std::string figure(double number) {
  return fixed(number, number < 10 ? 2 : number < 100 ? 1 : 0);
}

/// "12.3 (11.0-12.9)": median, least and largest.
std::string spread_text(const Spread& spread) {
  if (spread.samples == 0) return "-";
  return base::cat(figure(spread.median), " (", figure(spread.min), "-", figure(spread.max), ")");
}

std::string bytes_text(uint64_t bytes) {
  constexpr uint64_t kKib = 1024, kMib = kKib * 1024, kGib = kMib * 1024;
  if (bytes >= 10 * kGib) return base::cat((bytes + kGib / 2) / kGib, " GiB");
  if (bytes >= kMib) return base::cat(bytes / kMib, " MiB");
  if (bytes >= kKib) return base::cat(bytes / kKib, " KiB");
  return base::cat(bytes, " B");
}

std::string node_name(int node) {
  return node == shm::kAllNodes ? "all nodes" : base::cat("node ", node);
}

const char* nearness_text(shm::Nearness nearness) {
  switch (nearness) {
    case shm::Nearness::kSameCore: return "same core";
    case shm::Nearness::kSameCache: return "same last-level cache";
    case shm::Nearness::kSameNode: return "same node, other cache";
    case shm::Nearness::kSamePackage: return "same socket, other node";
    case shm::Nearness::kOtherPackage: return "other socket";
  }
  return "";
}

void add_line(std::string& text, const char* name, const std::string& value) {
  if (!value.empty())
    text += base::cat("  ", name, std::string(22 - std::string(name).size(), ' '), value, "\n");
}

std::string facts_text(const shm::MachineFacts& facts) {
  std::string text = "Machine\n";
  add_line(text, "processor", facts.cpu_model);
  add_line(text, "microcode", facts.microcode);
  add_line(text, "board, BIOS", base::cat(facts.board, facts.bios.empty() ? "" : ", ", facts.bios));
  add_line(text, "virtual machine", facts.hypervisor);
  add_line(text, "kernel", facts.kernel);
  add_line(text, "frequency governor", facts.governor);
  add_line(
      text, "huge pages",
      base::cat("transparent ", facts.transparent_huge_pages, ", shmem ", facts.shmem_huge_pages));
  add_line(text, "weights would lie in", facts.arena_file_system);
  add_line(text, "NUMA balancing",
           facts.numa_balancing == "0"    ? "off"
           : facts.numa_balancing.empty() ? ""
                                          : base::cat("on (", facts.numa_balancing, ")"));
  add_line(text, "CPU quota",
           facts.cpu_quota > 0 ? base::cat(facts.cpu_quota, " CPUs of time") : "none");
  add_line(text, "memory available",
           base::cat(bytes_text(facts.available_bytes),
                     facts.memory_limit_bytes > 0
                         ? base::cat(", limit ", bytes_text(facts.memory_limit_bytes))
                         : ""));
  add_line(text, "sockets", base::cat(facts.packages));
  std::string caches;
  for (const shm::CacheFacts& cache : facts.last_caches)
    caches +=
        base::cat(caches.empty() ? "" : "; ", bytes_text(cache.bytes), " of CPUs ", cache.cpus);
  add_line(text, "last-level caches", caches);
  Rows rows = {{"node", "socket", "cores", "CPUs", "memory", "free", "distances"}};
  for (const shm::NodeFacts& node : facts.nodes) {
    std::string distances;
    for (const int distance : node.distances)
      distances += base::cat(distances.empty() ? "" : " ", distance);
    rows.push_back({base::cat(node.os_index), node.cores > 0 ? base::cat(node.package) : "-",
                    base::cat(node.cores), node.cpus.empty() ? "-" : node.cpus,
                    bytes_text(node.memory_bytes), bytes_text(node.free_bytes), distances});
  }
  return text + "\n" + text_table(rows);
}

std::string memory_text(const MachineProfile& profile) {
  Rows rows = {{"node", "asked for", "bytes", "in huge pages", "bound", "on its node"}};
  for (const shm::MemoryFigure& memory : profile.memory) {
    const auto percent = [](double share) { return base::cat(fixed(100 * share, 1), " %"); };
    const double huge = static_cast<double>(memory.huge_bytes) /
                        static_cast<double>(std::max<uint64_t>(memory.bytes, 1));
    rows.push_back(
        {base::cat(memory.node), memory.asked == PageKind::kHuge ? "huge pages" : "4 KiB pages",
         bytes_text(memory.bytes), percent(huge), memory.bound ? "yes" : "refused",
         memory.verified_by.empty()
             ? "not known"
             : base::cat(percent(memory.share_on_node), ", verified by ", memory.verified_by)});
  }
  return "Memory measured on, as the system reports it\n" + text_table(rows);
}

const BandwidthFigure* find(const MachineProfile& profile, const BandwidthFigure& like) {
  for (const BandwidthFigure& one : profile.bandwidth)
    if (one.traffic == like.traffic && one.pages == like.pages &&
        one.reader_node == like.reader_node && one.memory_node == like.memory_node &&
        one.threads == like.threads)
      return &one;
  return nullptr;
}

std::string own_memory_text(const MachineProfile& profile) {
  Rows rows = {{"node", "threads", "4 KiB pages", "huge pages"}};
  std::vector<std::pair<int, int>> seen;
  for (const BandwidthFigure& one : profile.bandwidth) {
    if (one.traffic != Traffic::kRead || one.reader_node != one.memory_node) continue;
    const std::pair<int, int> key(one.reader_node, one.threads);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
    seen.push_back(key);
    std::vector<std::string> row = {node_name(one.reader_node), base::cat(one.threads)};
    for (const PageKind pages : {PageKind::kSmall, PageKind::kHuge}) {
      BandwidthFigure like = one;
      like.pages = pages;
      const BandwidthFigure* found = find(profile, like);
      row.push_back(found != nullptr ? spread_text(found->gb_per_s) : "not had");
    }
    rows.push_back(std::move(row));
  }
  return "Read bandwidth of nodes on their own memory, GB/s: median (least-largest)\n" +
         text_table(rows);
}

std::string writes_text(const MachineProfile& profile) {
  Rows rows = {{"node", "threads", "write", "copy"}};
  for (const BandwidthFigure& one : profile.bandwidth) {
    if (one.traffic != Traffic::kWrite) continue;
    BandwidthFigure like = one;
    like.traffic = Traffic::kCopy;
    const BandwidthFigure* copy = find(profile, like);
    rows.push_back({node_name(one.reader_node), base::cat(one.threads), spread_text(one.gb_per_s),
                    copy != nullptr ? spread_text(copy->gb_per_s) : "-"});
  }
  return "Write and copy, GB/s (a copy counts bytes read and written)\n" + text_table(rows);
}

/// Threads of the row's node on memory of the column's node.
template <class Cell>
std::string matrix_text(const MachineProfile& profile, const Cell& cell) {
  Rows rows = {{"reader"}};
  for (const shm::NodeFacts& memory : profile.facts.nodes)
    rows.front().push_back(base::cat("memory ", memory.os_index));
  for (const shm::NodeFacts& reader : profile.facts.nodes) {
    if (reader.cores == 0) continue;
    std::vector<std::string> row = {node_name(reader.os_index)};
    for (const shm::NodeFacts& memory : profile.facts.nodes)
      row.push_back(cell(reader.os_index, memory.os_index));
    rows.push_back(std::move(row));
  }
  return text_table(rows);
}

/// The figure that belongs into the matrix: in the best pages had, with every core but no second
/// hardware threads, which is how other nodes' memory is read.
const BandwidthFigure* matrix_figure(const MachineProfile& profile, int reader, int memory) {
  const BandwidthFigure* found = nullptr;
  int cores = 0;
  for (const shm::NodeFacts& node : profile.facts.nodes)
    if (node.os_index == reader) cores = node.cores;
  for (const BandwidthFigure& one : profile.bandwidth)
    if (one.traffic == Traffic::kRead && one.reader_node == reader && one.memory_node == memory &&
        one.threads <= cores &&
        (found == nullptr || one.pages > found->pages ||
         (one.pages == found->pages && one.threads > found->threads)))
      found = &one;
  return found;
}

std::string matrices_text(const MachineProfile& profile) {
  std::string text = "Read bandwidth, all cores of a node on memory of a node, GB/s: median\n";
  text += matrix_text(profile, [&](int reader, int memory) {
    const BandwidthFigure* found = matrix_figure(profile, reader, memory);
    return found != nullptr ? figure(found->gb_per_s.median) : "-";
  });
  text += "\nLatency of a random read, one core, ns: median (least-largest)\n";
  text += matrix_text(profile, [&](int reader, int memory) -> std::string {
    for (const shm::LatencyFigure& one : profile.latency)
      if (one.reader_node == reader && one.memory_node == memory)
        return base::cat(spread_text(one.ns), one.pages == PageKind::kSmall ? " 4K" : "");
    return "-";
  });
  return text;
}

std::string lines_text(const MachineProfile& profile) {
  Rows rows = {{"from", "to", "nodes", "distance", "ns"}};
  for (const shm::LineFigure& one : profile.lines)
    rows.push_back({base::cat("CPU ", one.cpu_a), base::cat("CPU ", one.cpu_b),
                    base::cat(one.node_a, ", ", one.node_b), nearness_text(one.nearness),
                    spread_text(one.ns)});
  if (rows.size() == 1) return "Hand-over of a cache line: there is only one CPU\n";
  return "Hand-over of a modified cache line, one way, ns\n" + text_table(rows);
}

std::string exchanges_text(const MachineProfile& profile) {
  Rows rows = {{"what", "ranks x threads", "microseconds"}};
  for (const shm::ExchangeFigure& one : profile.exchanges) {
    Spread us = one.ns;
    for (double* number : {&us.median, &us.min, &us.max}) *number /= 1e3;
    const std::string what =
        one.gather_bytes == 0 ? "barrier" : base::cat("gather of ", bytes_text(one.gather_bytes));
    rows.push_back({what,
                    base::cat(one.ranks, " x ", one.threads,
                              one.simulated && one.ranks > 1 ? " simulated" : ""),
                    spread_text(us)});
  }
  return "Exchange between ranks through shared memory, microseconds\n" + text_table(rows);
}

/// A row for each kind of work, a column for each number of columns that share the weights.
std::string kernels_text(const MachineProfile& profile) {
  if (profile.kernels.empty()) return {};
  using Key = std::pair<bool, int>;  // in memory, columns
  std::vector<Key> keys;
  std::vector<std::string> works;
  for (const shm::KernelFigure& one : profile.kernels) {
    const Key key{one.in_memory, one.columns};
    if (std::ranges::count(keys, key) == 0) keys.push_back(key);
    if (std::ranges::count(works, one.work) == 0) works.push_back(one.work);
  }
  std::ranges::sort(keys);
  Rows rows = {{"columns"}};
  for (const auto& [in_memory, count] : keys)
    rows[0].push_back(base::cat(count, in_memory ? " mem" : ""));
  for (const std::string& work : works) {
    Rows::value_type row = {work};
    for (const Key& key : keys) {
      const auto found = std::ranges::find_if(profile.kernels, [&](const shm::KernelFigure& one) {
        return one.work == work && Key{one.in_memory, one.columns} == key;
      });
      row.push_back(found == profile.kernels.end() ? "-" : figure(found->g_per_s.median));
    }
    rows.push_back(std::move(row));
  }
  return base::cat("Kernels (", profile.kernels.front().isa,
                   "), one thread of a busy node: 1e9 products a second by columns that share the "
                   "weights, from cache or memory\n",
                   text_table(rows));
}

std::string notes_text(const MachineProfile& profile) {
  if (profile.notes.empty()) return {};
  std::string text = "Notes\n";
  for (const std::string& note : profile.notes) text += base::cat("  - ", note, "\n");
  return text;
}

}  // namespace

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      line += base::cat("  ", i == 0 ? row[i] : blanks, i == 0 ? blanks : row[i]);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string probe_report(const MachineProfile& profile) {
  std::string text =
      base::cat("numoe probe, ", profile.measured_at, ", machine ", profile.fingerprint, ", ",
                fixed(profile.seconds, 1), " s", profile.quick ? ", quick" : "", "\n\n");
  text += facts_text(profile.facts);
  for (const std::string& section :
       {memory_text(profile), own_memory_text(profile), writes_text(profile),
        matrices_text(profile), lines_text(profile), exchanges_text(profile), kernels_text(profile),
        notes_text(profile)})
    if (!section.empty()) text += "\n" + section;
  return text;
}

}  // namespace cli
