#include "shm/shm_exchange.h"

#include <cstring>
#include <new>

#include "base/cat.h"
#include "base/limits.h"

namespace shm {

namespace {

constexpr size_t kCounterOffset = 128;
constexpr char kMagic[8] = {'N', 'U', 'M', 'O', 'E', 'X', 'C', 'H'};
constexpr uint32_t kVersion = 1;

/// First bytes of a region; written once by its rank, read by all others.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t rank;
  uint32_t ranks;
  uint32_t reserved;
  uint64_t slice_bytes_max;
  GroupNonce nonce;
};
static_assert(sizeof(Header) == 48 && sizeof(Header) <= kCounterOffset);

size_t stride_of(const ShmExchangeShape& shape) {
  return (shape.slice_bytes_max + 127) / 128 * 128;
}

Header header_of(const ShmExchangeShape& shape, const ShmExchange::Stamp& stamp) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.rank = static_cast<uint32_t>(stamp.rank);
  header.ranks = static_cast<uint32_t>(shape.ranks);
  header.slice_bytes_max = shape.slice_bytes_max;
  header.nonce = stamp.nonce;
  return header;
}

/// The counter's number once gather `sequence` is published; zeroed memory means "none yet" for
/// gathers that count from 0.
uint32_t number_of(uint64_t sequence) {
  return static_cast<uint32_t>(sequence + 1);
}

}  // namespace

size_t ShmExchange::bytes_per_rank(const ShmExchangeShape& shape) {
  return kSlicesOffset + 2 * stride_of(shape);
}

void ShmExchange::format(std::byte* region, const ShmExchangeShape& shape, const Stamp& stamp) {
  auto* counter = new (region + kCounterOffset) Counter{};
  counter->value.store(number_of(stamp.first_sequence - 1), std::memory_order_relaxed);
  const Header header = header_of(shape, stamp);
  std::memcpy(region, &header, sizeof header);
}

base::Result<void> ShmExchange::verify(const std::byte* region, const ShmExchangeShape& shape,
                                       const Stamp& stamp) {
  Header found;
  std::memcpy(&found, region, sizeof found);
  const Header expected = header_of(shape, stamp);
  if (std::memcmp(&found, &expected, sizeof found) == 0) return {};
  std::string what = "another group's nonce: the two do not share memory";
  if (std::memcmp(found.magic, kMagic, sizeof kMagic) != 0 || found.version != kVersion) {
    what = base::cat("no exchange region of version ", kVersion);
  } else if (found.rank != expected.rank || found.ranks != expected.ranks ||
             found.slice_bytes_max != expected.slice_bytes_max) {
    what = base::cat("rank ", found.rank, " of ", found.ranks, " with slices of ",
                     found.slice_bytes_max, " bytes instead of rank ", expected.rank, " of ",
                     expected.ranks, " with ", expected.slice_bytes_max);
  }
  return base::Error{base::Code::kUnsupported,
                     base::cat("the exchange region of rank ", stamp.rank, " shows ", what,
                               "; start all ranks from the same plan and program")};
}

ShmExchange::ShmExchange(Options options)
    : shape_(options.shape),
      rank_(options.rank),
      slice_stride_(stride_of(options.shape)),
      regions_(std::move(options.regions)),
      signals_(options.signals),
      wait_(options.wait),
      threads_(options.shape.threads) {
  CHECK(shape_.ranks >= 1 && shape_.ranks <= base::kRanksMax, shape_.ranks, " ranks");
  CHECK(shape_.threads >= 1 && shape_.threads <= base::kThreadsPerRankMax, shape_.threads,
        " threads");
  CHECK(rank_ >= 0 && rank_ < shape_.ranks, "rank ", rank_, " of ", shape_.ranks);
  CHECK(regions_.size() == static_cast<size_t>(shape_.ranks), regions_.size(), " regions");
}

Counter& ShmExchange::generation(int rank) const {
  return *std::launder(
      reinterpret_cast<Counter*>(regions_[static_cast<size_t>(rank)] + kCounterOffset));
}

base::Wait ShmExchange::arrive_and_wait(const base::Gather& gather) {
  CHECK(gather.bytes <= shape_.slice_bytes_max, "a slice of ", gather.bytes, " bytes, at most ",
        shape_.slice_bytes_max);
  CHECK(gather.members.contains(rank_), "rank ", rank_, " is no member of gather ",
        gather.sequence);
  if (const base::Wait state = signals_.state(); state != base::Wait::kOk) [[unlikely]] {
    return state;
  }
  // Release: my part of the slice. Acquire: the parts of those who came before me.
  const bool last = arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_;
  if (last) publish(gather);
  WaitBudget budget(wait_);
  if (!last) {
    const base::Wait wait = await_members(gather, budget);
    if (budget.sleeps > 0) sleeps_.fetch_add(budget.sleeps, std::memory_order_relaxed);
    return wait;
  }
  const base::TimeNs begin = base::SteadyClock().now();
  const base::Wait wait = await_members(gather, budget);
  if (budget.sleeps > 0) sleeps_.fetch_add(budget.sleeps, std::memory_order_relaxed);
  wait_ns_.fetch_add(base::SteadyClock().now() - begin, std::memory_order_relaxed);
  return wait;
}

void ShmExchange::publish(const base::Gather& gather) {
  Counter& own = generation(rank_);
  const uint32_t number = number_of(gather.sequence);
  const uint32_t before = own.value.load(std::memory_order_relaxed);
  CHECK(!reached(before, number), "gather ", gather.sequence, " comes again or too late");
  CHECK(number - before == 1 || gather.bytes == 0, "gather ", gather.sequence,
        " publishes a slice after others were left out");
  // Relaxed: the next arrivals come after raise() below, which releases this store to them.
  arrived_.store(0, std::memory_order_relaxed);
  gathers_.fetch_add(1, std::memory_order_relaxed);
  raise(own, number);
}

// Starts behind the own rank, so that ranks do not all pull the same line at once.
base::Wait ShmExchange::await_members(const base::Gather& gather, WaitBudget& budget) {
  const uint32_t target = number_of(gather.sequence);
  for (int i = 1; i <= shape_.ranks; ++i) {
    const int peer = (rank_ + i) % shape_.ranks;
    if (!gather.members.contains(peer)) continue;
    const base::Wait wait = await(generation(peer), target, signals_, budget);
    if (wait != base::Wait::kOk) return wait;
  }
  return base::Wait::kOk;
}

void ShmExchange::abort() {
  signals_.abort();
  for (int rank = 0; rank < shape_.ranks; ++rank) nudge(generation(rank));
}

ExchangeStats ShmExchange::stats() const {
  return {.gathers = gathers_.load(std::memory_order_relaxed),
          .sleeps = sleeps_.load(std::memory_order_relaxed),
          .wait_ns = wait_ns_.load(std::memory_order_relaxed)};
}

}  // namespace shm
