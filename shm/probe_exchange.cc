// The part of shm/probe_samples.h that measures gathers and barriers.
#include <algorithm>
#include <new>

#include "shm/probe_loops.h"
#include "shm/probe_samples.h"
#include "shm/probe_team.h"

namespace shm {

namespace {

constexpr int kBatch = 8;  // gathers; the first batch is dropped: cores and threads wake

int batches_of(const ExchangeRig::Load& load) {
  return std::max(load.gathers / kBatch, 1);
}

}  // namespace

base::Result<std::unique_ptr<ExchangeRig>> ExchangeRig::create(const Options& options,
                                                               const std::atomic<bool>& stop) {
  std::unique_ptr<ExchangeRig> rig(new ExchangeRig());
  rig->ranks_ = options.ranks;
  const size_t ranks = options.ranks.size();
  const auto shape_of = [&](size_t rank) {
    return ShmExchangeShape{.ranks = static_cast<int>(ranks),
                            .threads = static_cast<int>(options.ranks[rank].cpus.size()),
                            .slice_bytes_max = options.gather_bytes_max / ranks + sizeof(uint64_t)};
  };
  std::vector<std::byte*> addresses;
  for (size_t rank = 0; rank <= ranks; ++rank) {
    const RankPlacement& home = options.ranks[rank % ranks];
    const size_t bytes = rank < ranks ? ShmExchange::bytes_per_rank(shape_of(rank)) : 4096;
    ASSIGN_OR_RETURN(ProbeMemory region, ProbeMemory::create({.bytes = bytes,
                                                              .os_node = home.os_node,
                                                              .pages = PageKind::kSmall,
                                                              .cpus = {home.cpus.front()}},
                                                             stop));
    std::fill_n(region.data(), region.bytes(), std::byte{0});
    if (rank < ranks) {
      addresses.push_back(region.data());
      ShmExchange::format(region.data(), shape_of(rank),
                          {.rank = static_cast<int>(rank), .nonce = {}, .first_sequence = 0});
    }
    rig->regions_.push_back(std::move(region));
  }
  auto* const word = new (rig->regions_.back().data()) AbortWord{};
  WaitOptions wait;
  if (options.oversubscribed) wait.spin_pauses = kSpinPausesOversubscribed;
  for (size_t rank = 0; rank < ranks; ++rank) {
    rig->exchanges_.push_back(
        std::make_unique<ShmExchange>(ShmExchange::Options{.shape = shape_of(rank),
                                                           .rank = static_cast<int>(rank),
                                                           .regions = addresses,
                                                           .signals = GroupSignals(word, nullptr),
                                                           .wait = wait}));
  }
  return rig;
}

// As the maths would: every thread writes its part, and every thread reads all. The median of
// batches, since whoever interrupts one of the threads holds up all of them.
double ExchangeRig::run_thread(size_t rank, size_t thread, const Load& load,
                               const std::atomic<bool>& stop) {
  ShmExchange& exchange = *exchanges_[rank];
  const size_t ranks = ranks_.size(), threads = ranks_[rank].cpus.size();
  const size_t words =
      (load.gather_bytes + ranks * sizeof(uint64_t) - 1) / ranks / sizeof(uint64_t);
  const size_t begin = thread * words / threads, end = (thread + 1) * words / threads;
  const base::SteadyClock clock;
  std::vector<double> batches_ns;
  base::TimeNs began = clock.now();
  for (int batch = 0; batch <= batches_of(load); ++batch) {
    for (int i = 0; i < kBatch; ++i) {
      const uint64_t sequence = sequence_ + static_cast<uint64_t>(batch * kBatch + i);
      if (stop.load(std::memory_order_relaxed)) exchange.abort();
      auto* const out = reinterpret_cast<uint64_t*>(exchange.outgoing(sequence));
      for (size_t word = begin; word < end; ++word) out[word] = sequence + word;
      if (exchange.arrive_and_wait(sequence, words * sizeof(uint64_t)) != base::Wait::kOk) return 0;
      for (size_t peer = 0; peer < ranks; ++peer)
        read_words(exchange.incoming(sequence, static_cast<int>(peer)), words * sizeof(uint64_t));
    }
    const base::TimeNs now = clock.now();
    if (batch > 0) batches_ns.push_back(static_cast<double>(now - began) / kBatch);
    began = now;
  }
  return spread_of(std::move(batches_ns)).median;
}

base::Result<double> ExchangeRig::sample(const Load& load, const std::atomic<bool>& stop) {
  std::vector<int> cpus;
  std::vector<std::pair<size_t, size_t>> who;  // rank and thread
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (size_t thread = 0; thread < ranks_[rank].cpus.size(); ++thread) {
      cpus.push_back(ranks_[rank].cpus[thread]);
      who.emplace_back(rank, thread);
    }
  }
  double gather_ns = 0;
  RETURN_IF_ERROR(run_pinned(cpus, [&](size_t i) {
    const double own = run_thread(who[i].first, who[i].second, load, stop);
    if (i == 0) gather_ns = own;
  }));
  sequence_ += static_cast<uint64_t>((batches_of(load) + 1) * kBatch);
  return gather_ns;
}

}  // namespace shm
