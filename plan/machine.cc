#include "plan/machine.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "base/check.h"
#include "plan/assumed.h"

namespace plan {

namespace {

using base::cat;

constexpr double kUsableMemory = 0.94;  // of a node of which only the size is known
constexpr double kAssumedLinkGbit = 10, kAssumedRoundTripUs = 120;

void lower(Origin& origin, Origin other) {
  origin = std::min(origin, other);
}

/// The logical index of the node that holds the CPUs of a rank; 0 if none does.
size_t home_of(const shm::Topology& topology, const shm::RankPlacement& rank) {
  for (size_t n = 0; n < topology.nodes.size(); n++)
    for (const shm::Core& core : topology.nodes[n].cores)
      if (!rank.cpus.empty() && std::ranges::count(core.cpus, rank.cpus.front()) > 0) return n;
  return 0;
}

double medians(const shm::MachineProfile& profile, int reader, int memory, bool huge, int threads) {
  double best = 0;
  for (const shm::BandwidthFigure& figure : profile.bandwidth) {
    if (figure.traffic != shm::Traffic::kRead || figure.gb_per_s.samples == 0) continue;
    if ((figure.pages == shm::PageKind::kHuge) != huge) continue;
    if (figure.reader_node == reader && figure.memory_node == memory &&
        (threads == 0 || figure.threads == threads))
      best = std::max(best, figure.gb_per_s.median);
  }
  return best;
}

/// Whether weights lie in huge pages: they were had, and the arena's file system gives them.
bool has_huge(const shm::MachineProfile& profile) {
  const std::string& arena = profile.facts.arena_file_system;
  const bool gives =
      arena.find("huge") != std::string::npos && arena.find("huge=never") == std::string::npos;
  if (!arena.empty() && !gives) return false;
  return std::ranges::any_of(profile.bandwidth, [](const shm::BandwidthFigure& figure) {
    return figure.pages == shm::PageKind::kHuge && figure.gb_per_s.samples > 0;
  });
}

/// What reading all nodes at once leaves of the sum of reading each alone, at most 1.
double together(const shm::MachineProfile& profile, bool huge) {
  const double all = medians(profile, shm::kAllNodes, shm::kAllNodes, huge, 0);
  double sum = 0;
  for (const shm::NodeFacts& node : profile.facts.nodes)
    sum += medians(profile, node.os_index, node.os_index, huge, 0);
  return all > 0 && sum > 0 ? std::min(1.0, all / sum) : 1.0;
}

/// The measured curve of a node; empty if there is none.
std::vector<ReadPoint> measured_read(const shm::MachineProfile& profile, int os_index) {
  const bool huge = has_huge(profile);
  const double share = together(profile, huge);
  std::vector<ReadPoint> points;
  for (const shm::BandwidthFigure& figure : profile.bandwidth) {
    if (figure.reader_node != os_index || figure.memory_node != os_index ||
        figure.traffic != shm::Traffic::kRead || figure.gb_per_s.samples == 0 ||
        (figure.pages == shm::PageKind::kHuge) != huge)
      continue;
    points.push_back({figure.threads, share * figure.gb_per_s.median});
  }
  std::ranges::sort(points, {}, &ReadPoint::threads);
  // More threads read no less: a smaller figure is noise or a queue that a plan need not join.
  for (size_t i = 1; i < points.size(); i++)
    points[i].gb_per_s = std::max(points[i].gb_per_s, points[i - 1].gb_per_s);
  return points;
}

/// The curve of each of `parts` equal parts of a node that read at the same time.
void divide(std::vector<ReadPoint>& points, int parts) {
  std::vector<ReadPoint> own;
  for (const ReadPoint& point : points) {
    if (point.threads % parts != 0) continue;
    own.push_back({point.threads / parts, point.gb_per_s / parts});
  }
  if (own.empty()) own.push_back({1, points.back().gb_per_s / parts});
  points = own;
}

class HostReader {
 public:
  HostReader(const HostFacts& facts, Machine& machine) : facts_(facts), machine_(machine) {}

  void add_nodes(int host) {
    const auto& ranks = facts_.placement.ranks;
    std::vector<size_t> homes;
    for (const shm::RankPlacement& rank : ranks) homes.push_back(home_of(facts_.topology, rank));
    for (size_t i = 0; i < ranks.size(); i++) {
      const shm::Node& home = facts_.topology.nodes[homes[i]];
      const auto parts = static_cast<int>(std::ranges::count(homes, homes[i]));
      MachineNode node{.os_index = home.os_index,
                       .host = host,
                       .package = home.cores.empty() ? 0 : home.cores.front().package,
                       .threads = static_cast<int>(ranks[i].cpus.size()),
                       .read = {}};
      node.memory_bytes = memory_of(home, i, parts);
      node.read = read_of(home, i, node.threads, parts);
      machine_.simulated |= parts > 1;
      machine_.nodes.push_back(std::move(node));
    }
  }

 private:
  template <class T>
  static T given(const std::vector<T>& values, size_t place) {
    if (values.empty()) return 0;
    return values.size() == 1 ? values.front() : values[std::min(place, values.size() - 1)];
  }

  uint64_t memory_of(const shm::Node& home, size_t place, int parts) {
    if (const uint64_t bytes = given(facts_.memory_bytes, place); bytes > 0) {
      lower(machine_.memory_origin, Origin::kGiven);
      return bytes;
    }
    lower(machine_.memory_origin, Origin::kGiven);
    return static_cast<uint64_t>(static_cast<double>(home.memory_bytes) * kUsableMemory) /
           static_cast<uint64_t>(parts);
  }

  int socket_cores(int package) const {
    int cores = 0;
    for (const shm::Node& node : facts_.topology.nodes)
      for (const shm::Core& core : node.cores) cores += core.package == package ? 1 : 0;
    return cores;
  }

  std::vector<ReadPoint> read_of(const shm::Node& home, size_t place, int threads, int parts) {
    const int package = home.cores.empty() ? 0 : home.cores.front().package;
    const AssumedMemory memory = assumed_memory(socket_cores(package));
    if (const double gb = given(facts_.gb_per_s, place); gb > 0) {
      lower(machine_.read_origin, Origin::kGiven);
      return assumed_read(gb, std::max(memory.gb_per_s_core, gb / threads), threads);
    }
    if (facts_.profile != nullptr) {
      std::vector<ReadPoint> points = measured_read(*facts_.profile, home.os_index);
      if (!points.empty()) {
        if (parts > 1) divide(points, parts);
        return points;
      }
    }
    lower(machine_.read_origin, Origin::kAssumed);
    std::string note = cat("read bandwidth is assumed: ", memory.channels, " channels of ",
                           memory.kind, " a socket, of which reading reaches 80 %, ",
                           static_cast<int>(memory.gb_per_s), " GB/s; name it with --bandwidth");
    if (std::ranges::count(machine_.notes, note) == 0) machine_.notes.push_back(std::move(note));
    double nodes = 0;  // of the socket
    for (const shm::Node& node : facts_.topology.nodes)
      nodes += !node.cores.empty() && node.cores.front().package == package ? 1 : 0;
    return assumed_read(memory.gb_per_s / std::max(nodes, 1.0) / parts, memory.gb_per_s_core,
                        threads);
  }

  const HostFacts& facts_;
  Machine& machine_;
};

/// Fits cost = a + bytes / b to the gathers of as many ranks; 0 where there are none.
void measured_meeting(const shm::MachineProfile& profile, int threads, MeetingSpeed& speed) {
  int ranks = 0;
  double first_ns = 0, last_ns = 0, first_bytes = 0, last_bytes = 0;
  for (const shm::ExchangeFigure& figure : profile.exchanges) {
    if (figure.ns.samples == 0) continue;
    if (figure.ranks == 1 && figure.gather_bytes == 0) {
      // Counted for the threads that were measured; every further one adds its arrival.
      speed.barrier_ns = figure.ns.median *
                         std::max(1.0, static_cast<double>(threads) / std::max(figure.threads, 1));
    }
    if (figure.ranks > 1 && figure.gather_bytes == 0 && figure.simulated) {
      // Ranks that share a node meet as its threads do.
      speed.barrier_ns =
          figure.ns.median *
          std::max(1.0, static_cast<double>(threads) / std::max(figure.ranks * figure.threads, 1));
    }
    if (figure.ranks < 2 || figure.gather_bytes == 0) continue;
    ranks = std::max(ranks, figure.ranks);
    const auto bytes = static_cast<double>(figure.gather_bytes);
    if (first_bytes == 0 || bytes < first_bytes) {
      first_bytes = bytes;
      first_ns = figure.ns.median;
    }
    if (bytes > last_bytes) {
      last_bytes = bytes;
      last_ns = figure.ns.median;
    }
  }
  if (ranks == 0 || last_ns <= first_ns) return;
  speed.gather_gb_per_s = (last_bytes - first_bytes) / (last_ns - first_ns);
  speed.gather_ns = std::max(0.0, first_ns - first_bytes / speed.gather_gb_per_s);
}

/// How fast the slowest node reads the memory of another one; 0: not measured.
double measured_remote(const shm::MachineProfile& profile) {
  double slowest = 0;
  for (const shm::NodeFacts& reader : profile.facts.nodes) {
    for (const shm::NodeFacts& memory : profile.facts.nodes) {
      if (reader.os_index == memory.os_index || reader.cores == 0) continue;
      const double gb = medians(profile, reader.os_index, memory.os_index, has_huge(profile), 0);
      if (gb > 0 && (slowest == 0 || gb < slowest)) slowest = gb;
    }
  }
  return slowest;
}

void read_meeting(const HostFacts& facts, Machine& machine) {
  int threads = 1;
  for (const shm::RankPlacement& rank : facts.placement.ranks)
    threads = std::max(threads, static_cast<int>(rank.cpus.size()));
  MeetingSpeed speed = assumed_meeting(threads, std::max(facts.topology.packages, 1));
  MeetingSpeed measured;
  if (facts.profile != nullptr) {
    measured_meeting(*facts.profile, threads, measured);
    measured.remote_gb_per_s = measured_remote(*facts.profile);
  }
  const bool one = facts.placement.ranks.size() == 1;
  if (measured.barrier_ns > 0) speed.barrier_ns = measured.barrier_ns;
  if (measured.gather_gb_per_s > 0) {
    speed.gather_ns = measured.gather_ns;
    speed.gather_gb_per_s = measured.gather_gb_per_s;
  }
  if (measured.remote_gb_per_s > 0) speed.remote_gb_per_s = measured.remote_gb_per_s;
  lower(machine.meeting_origin, measured.gather_gb_per_s > 0 || (one && measured.barrier_ns > 0)
                                    ? Origin::kMeasured
                                    : Origin::kAssumed);
  MeetingSpeed& worst = machine.meeting;
  worst.barrier_ns = std::max(worst.barrier_ns, speed.barrier_ns);
  worst.gather_ns = std::max(worst.gather_ns, speed.gather_ns);
  const auto slower = [](double& rate, double other) {
    rate = rate == 0 ? other : std::min(rate, other);
  };
  slower(worst.gather_gb_per_s, speed.gather_gb_per_s);
  slower(worst.remote_gb_per_s, speed.remote_gb_per_s);
}

/// The kernels of the first host stand for all.
void read_kernels(const HostFacts& facts, Machine& machine) {
  machine.kernels = assumed_kernels(facts.isa);
  machine.thread = assumed_thread(facts.isa);
  if (facts.profile == nullptr || !take_kernels(*facts.profile, machine)) {
    lower(machine.kernel_origin, Origin::kAssumed);
    machine.notes.push_back(
        cat("speed of the kernels is assumed: cores with ", facts.isa.empty() ? "avx2" : facts.isa,
            ", as a Zen 4 core has them; `numoe probe --save` measures those of a machine"));
  }
}

}  // namespace

Machine machine_of(const std::vector<HostFacts>& hosts) {
  CHECK(!hosts.empty());
  Machine machine;
  machine.read_origin = machine.memory_origin = machine.kernel_origin = machine.meeting_origin =
      Origin::kMeasured;
  for (size_t h = 0; h < hosts.size(); h++) {
    const HostFacts& facts = hosts[h];
    CHECK(!facts.placement.ranks.empty());
    MachineHost host{.name = facts.name};
    if (hosts.size() > 1) {
      host.link_gbit_per_s = facts.link_gbit_per_s > 0 ? facts.link_gbit_per_s : kAssumedLinkGbit;
      host.round_trip_us = facts.round_trip_us > 0 ? facts.round_trip_us : kAssumedRoundTripUs;
      if (facts.link_gbit_per_s <= 0 || facts.round_trip_us <= 0) {
        machine.notes.push_back(cat("the link of host ", facts.name,
                                    " is assumed: ", host.link_gbit_per_s, " Gbit/s, ",
                                    host.round_trip_us, " us for a round trip"));
      }
    }
    machine.hosts.push_back(std::move(host));
    HostReader(facts, machine).add_nodes(static_cast<int>(h));
    read_meeting(facts, machine);
    if (h == 0) read_kernels(facts, machine);
  }
  if (machine.meeting_origin == Origin::kAssumed)
    machine.notes.push_back(cat("waits are assumed: ", std::lround(machine.meeting.barrier_ns),
                                " ns inside a node, ", std::lround(machine.meeting.gather_ns),
                                " ns between nodes"));
  return machine;
}

double read_gb_per_s(const MachineNode& node, int threads) {
  ReadPoint before{0, 0};
  for (const ReadPoint& point : node.read) {
    if (threads <= point.threads) {
      const double part = static_cast<double>(threads - before.threads) /
                          static_cast<double>(point.threads - before.threads);
      return before.gb_per_s + part * (point.gb_per_s - before.gb_per_s);
    }
    before = point;
  }
  return before.gb_per_s;
}

int threads_for(const MachineNode& node, double share) {
  const double enough = share * read_gb_per_s(node, node.threads);
  int threads = 1;
  while (threads < node.threads && read_gb_per_s(node, threads) < enough) threads++;
  return threads;
}

}  // namespace plan
