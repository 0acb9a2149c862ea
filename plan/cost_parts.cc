// The parts of a step that plan/cost.h sums up: products, attention, preparing, waits.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/limits.h"
#include "plan/cost.h"

namespace plan {

namespace {

constexpr int64_t kRedundantColumns = 4;  // of engine/pass.h: up to here threads prepare all alone
constexpr double kSharingQueries = 4;     // from so many on queries share the loads of their keys
constexpr double kItemsPerThread = 4;     // of engine/attend_items.cc
constexpr double kSegmentPositions = base::kSegmentBlocks * base::kKvBlockPositions;
constexpr double kGiga = 1e9;

/// The longest thread's share of `items` over the even one.
double unevenness(double items, int threads) {
  if (items <= 0) return 1;
  return std::ceil(items / threads) * threads / items;
}

}  // namespace

double distinct_experts(int count, int used, double columns) {
  const double missed = 1.0 - static_cast<double>(used) / count;
  return count * (1.0 - std::pow(missed, columns));
}

namespace {

/// The same of ranks whose chosen experts vary so much, each.
double excess_of(double variance, int ranks) {
  if (ranks < 2) return 0;
  // Expected largest of so many standard normal numbers, which sum to 0 here.
  constexpr std::array<double, 9> kLargest = {0,     0,     0.564, 0.846, 1.029,
                                              1.163, 1.267, 1.352, 1.424};
  const double n = ranks;
  const double largest =
      ranks < 9 ? kLargest[static_cast<size_t>(ranks)] : std::sqrt(2 * std::log(n)) - 0.5;
  return largest * std::sqrt(n / (n - 1) * std::max(0.0, variance));
}

}  // namespace

double experts_in_excess(double chosen, int count, double share, int ranks) {
  if (count < 2) return 0;
  return excess_of(chosen * share * (1 - share) * (count - chosen) / (count - 1), ranks);
}

/// What one rank spends in one part of a layer, in seconds.
struct Replica::Spent {
  double memory = 0, compute = 0, read = 0;
  double bytes = 0;
  double total() const { return std::max(memory, compute); }
};

/// Which of its experts a rank computes in a step.
struct Replica::Chosen {
  double experts = 0;  // distinct ones
  double columns = 0;  // that meet in each of them
  double choices = 0;  // of one token
};

Replica::Chosen Replica::chosen_on(const Kind& kind, size_t r, double columns) const {
  const model::Experts& experts = *kind.block.experts;
  const BlockShare& own = kind.shares[r];
  const auto ranks = own.whole_experts ? static_cast<int>(kind.members.size()) : 1;
  const double most = own.whole_experts ? static_cast<double>(own.owned.size()) : experts.count;
  const double share = most / experts.count;
  if (kind.chances.empty()) {
    const double distinct = distinct_experts(experts.count, experts.used, columns);
    const double excess = experts_in_excess(distinct, experts.count, share, ranks);
    return {std::min(most, distinct * share + excess), columns * experts.used / distinct,
            experts.used * share};
  }
  double distinct = 0, choices = 0, variance = 0;
  const auto add = [&](double chance) {
    const double chosen = 1 - std::pow(1 - chance, columns);
    distinct += chosen;
    variance += chosen * (1 - chosen);
    choices += chance;
  };
  if (own.whole_experts) {
    for (const int32_t expert : own.owned) add(kind.chances[static_cast<size_t>(expert)]);
  } else {
    std::ranges::for_each(kind.chances, add);
  }
  if (distinct <= 0) return {};
  // Of evenly chosen experts that is what experts_in_excess() counts.
  variance *= (1 - share) * experts.count / std::max(1, experts.count - 1);
  return {std::min(most, distinct + excess_of(variance, ranks)), columns * choices / distinct,
          choices};
}

Replica::Spent Replica::spent_on(const Kind& kind, size_t r, Phase phase, const Load& load,
                                 int threads_max) const {
  const Rank& rank = ranks_[r];
  const int threads = std::min(rank.threads, threads_max);
  const double columns = static_cast<double>(phase == Phase::kLogits ? load.logits : load.columns);
  const bool chooses = kind.block.experts && (phase == Phase::kGateUp || phase == Phase::kDown);
  const Chosen chosen = chooses ? chosen_on(kind, r, columns) : Chosen{};
  Spent spent;
  double units = 0, thread_ns = 0;  // panels dealt to threads; time of one thread for all
  double streamed = 0;              // bytes as if they were read at full bandwidth
  for (const Piece& piece : kind.pieces[r]) {
    if (piece.phase != phase || piece.matrices == 0) continue;
    double used = static_cast<double>(piece.matrices), each = columns;
    if (piece.chosen) {
      used = chosen.experts;
      each = chosen.columns;
    }
    if (used == 0) continue;
    const double weights = used * static_cast<double>(piece.rows * piece.row_length);
    spent.bytes += used * static_cast<double>(piece.matrix_bytes);
    const KernelSpeed& kernel = kernel_speed(machine_, piece.type);
    // The share was measured in bytes of the file's type.
    const int64_t row_bytes = kernels::row_bytes(piece.type, piece.row_length);
    streamed += used * static_cast<double>(piece.rows * row_bytes) / kernel.stream_share;
    thread_ns += weights * weight_ns(kernel, each);
    // All experts' rows of down are dealt out at once; of others each matrix by itself.
    const double panels = static_cast<double>(piece.panels());
    units = phase == Phase::kDown && !kind.shares[r].whole_experts ? std::max(units, panels)
                                                                   : units + used * panels;
  }
  if (spent.bytes == 0) return spent;
  const double uneven = unevenness(units, threads);
  const int busy = static_cast<int>(std::min<double>(threads, std::ceil(units)));
  const double rate = read_gb_per_s(rank.node, busy) * kGiga;
  const double alone = read_gb_per_s(rank.node, 1) * kGiga;
  spent.read = streamed / rate;
  spent.memory = std::max(spent.read, streamed * uneven / threads / alone);
  spent.compute = thread_ns * uneven / threads / kGiga;
  return spent;
}

void Replica::add_phase(const Kind& kind, Phase phase, const Load& load, int threads_max,
                        StepCost& cost) const {
  Spent slowest;
  for (const size_t r : kind.members) {
    const Spent spent = spent_on(kind, r, phase, load, threads_max);
    cost.read_seconds[r] += spent.read;
    cost.read_bytes[r] += static_cast<uint64_t>(spent.bytes);
    if (spent.total() > slowest.total()) slowest = spent;
  }
  if (slowest.memory >= slowest.compute) {
    cost.time.weights += slowest.memory;
  } else {
    cost.time.compute += slowest.compute;
  }
}

void Replica::add_attention(const Kind& kind, const Load& load, int threads_max,
                            StepCost& cost) const {
  const model::Attention& attention = kind.block.attention;
  const auto positions =
      static_cast<double>(load.position + 1 - attention.first_position(load.position));
  const double dims = attention.head_dim + attention.value_dim;
  const auto position_bytes = static_cast<double>(kv_.row_bytes(attention.head_dim) +
                                                  kv_.row_bytes(attention.cached_value_dim()));
  double kv = 0, compute = 0;
  for (const size_t r : kind.members) {
    const int threads = std::min(ranks_[r].threads, threads_max);
    const BlockShare& own = kind.shares[r];
    const auto queries = static_cast<double>(own.heads.size() * load.columns);
    // Threads share long contexts, too.
    const double items = queries * std::ceil(positions / kSegmentPositions);
    // Heads of a group and columns of a sequence share their keys, where enough is left for all.
    const double together = std::min(
        static_cast<double>(attention.heads / attention.kv_heads * load.columns / load.sequences),
        items / (kItemsPerThread * threads));
    const double rate =
        together >= kSharingQueries ? machine_.thread.attend_together : machine_.thread.attend;
    const double products = queries * positions * dims * unevenness(items, threads) / threads;
    const double bytes =
        static_cast<double>(own.kv_heads.size() * load.sequences) * positions * position_bytes;
    const int busy = static_cast<int>(std::clamp<double>(items, 1, threads));
    const double read = bytes / (read_gb_per_s(ranks_[r].node, busy) * kGiga);
    cost.read_seconds[r] += read;
    kv = std::max(kv, read);
    compute = std::max(compute, products / (rate * kGiga));
  }
  if (kv >= compute) {
    cost.time.kv += kv;
  } else {
    cost.time.compute += compute;
  }
}

// With many columns what products give no longer fits the caches: it is written and read again; and
// the activation between up and down takes as long as preparing does.
void Replica::add_outputs(const Kind& kind, const Load& load, int threads_max,
                          StepCost& cost) const {
  if (load.columns <= kRedundantColumns) return;
  double slowest = 0;
  for (const size_t r : kind.members) {
    const int threads = std::min(ranks_[r].threads, threads_max);
    double values = 0, activated = 0;
    const double choices = kind.block.experts ? chosen_on(kind, r, 1).choices : 0;
    for (const Piece& piece : kind.pieces[r]) {
      const double used = piece.chosen ? choices : static_cast<double>(piece.matrices);
      values += piece.phase == Phase::kLookup ? 0 : used * static_cast<double>(piece.rows);
      if (piece.phase == Phase::kGateUp) activated += used * static_cast<double>(piece.rows) / 2;
    }
    const auto columns = static_cast<double>(load.columns);
    slowest =
        std::max(slowest, columns * (8 * values / (read_gb_per_s(ranks_[r].node, threads) * kGiga) +
                                     activated / threads / (machine_.thread.prepare * kGiga)));
  }
  cost.time.compute += slowest;
}

void Replica::add_prepared(int64_t values, const Load& load, int threads_max,
                           StepCost& cost) const {
  if (values == 0) return;
  cost.time.compute += shared_columns(load, threads_max, cost) * static_cast<double>(values) /
                       (machine_.thread.prepare * kGiga);
}

double Replica::shared_columns(const Load& load, int threads_max, StepCost& cost) const {
  const double columns = static_cast<double>(load.columns);
  if (load.columns <= kRedundantColumns) return columns;
  int least = threads_max;
  for (const Rank& rank : ranks_) least = std::min(least, rank.threads);
  add_barrier(cost);
  return std::ceil(columns / least);
}

void Replica::add_barrier(StepCost& cost) const {
  if (std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.threads == 1; })) return;
  cost.waits++;
  cost.time.waits += machine_.meeting.barrier_ns / kGiga;
}

void Replica::add_gather(const std::vector<size_t>& members, int64_t floats, const Load& load,
                         StepCost& cost) const {
  const MeetingSpeed& meeting = machine_.meeting;
  cost.waits++;
  if (members.size() < 2) {
    cost.time.waits += meeting.barrier_ns / kGiga;
    return;
  }
  std::vector<int> hosts;
  int threads = ranks_[members.front()].threads;
  for (const size_t r : members) {
    hosts.push_back(ranks_[r].node.host);
    threads = std::min(threads, ranks_[r].threads);
  }
  std::ranges::sort(hosts);
  const auto host_count = static_cast<double>(std::ranges::unique(hosts).begin() - hosts.begin());
  // Measured with all ranks of a host; with fewer in proportion.
  const double most = std::max<double>(2, static_cast<double>(machine_.nodes.size()));
  const auto ranks = static_cast<double>(members.size());
  const double part = std::min(1.0, (ranks / host_count - 1) / (most / host_count - 1));
  const double bytes = 4.0 * static_cast<double>(floats * load.columns);
  cost.gathered_bytes += static_cast<uint64_t>(bytes);
  cost.time.waits += (meeting.barrier_ns +
                      std::max(0.0, part) * std::max(0.0, meeting.gather_ns - meeting.barrier_ns)) /
                     kGiga;
  const double taken = load.columns > kRedundantColumns ? bytes / threads : bytes;
  double handed = taken / (meeting.gather_gb_per_s * kGiga);
  handed = std::max(handed, bytes * (ranks - 1) / ranks / (meeting.remote_gb_per_s * kGiga));
  if (host_count > 1) {
    double round_trip_us = 0, gbit = 1e9;
    for (const size_t r : members) {
      const MachineHost& host = machine_.hosts[static_cast<size_t>(ranks_[r].node.host)];
      round_trip_us = std::max(round_trip_us, host.round_trip_us);
      gbit = std::min(gbit, host.link_gbit_per_s);
    }
    cost.time.waits += round_trip_us / 2 * 1e-6;
    // Every rank sends its slice to each rank of the other hosts.
    handed += bytes / host_count * (ranks - ranks / host_count) * 8 / (gbit * kGiga);
  }
  cost.time.handed += handed;
}

}  // namespace plan
