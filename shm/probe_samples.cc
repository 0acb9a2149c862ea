#include "shm/probe_samples.h"

#include <algorithm>
#include <cstring>

#include "base/cat.h"
#include "shm/futex.h"
#include "shm/probe_loops.h"
#include "shm/probe_team.h"

namespace shm {

namespace {

base::TimeNs now_ns() {
  return base::SteadyClock().now();
}

/// What one thread did; on lines of its own, so that threads do not meet in their results.
struct alignas(128) StreamTimes {
  base::TimeNs begin = 0, end = 0;
  uint64_t bytes = 0;
};

/// Moves the bytes of one piece; returns how many count.
uint64_t move_piece(Traffic traffic, std::span<std::byte> piece) {
  switch (traffic) {
    case Traffic::kRead: read_words(piece.data(), piece.size()); break;
    case Traffic::kWrite: std::memset(piece.data(), 1, piece.size()); break;
    case Traffic::kCopy:
      std::memcpy(piece.data(), piece.data() + piece.size() / 2, piece.size() / 2);
      break;
  }
  return piece.size();
}

void run_stream(const StreamSlice& slice, const BandwidthSample& sample,
                const std::atomic<bool>& stop, StreamTimes& times) {
  // Small enough that all threads end at nearly the same time, large enough to read no clock.
  constexpr size_t kPiece = size_t{256} << 10;
  constexpr size_t kGranule = 128;
  CHECK(slice.bytes.size() >= kGranule, "a slice of ", slice.bytes.size(), " bytes");
  const size_t piece = std::min(kPiece, slice.bytes.size() / kGranule * kGranule);
  const size_t pieces = slice.bytes.size() / piece;
  size_t next = static_cast<size_t>(sample.round) * 7 % 16 * pieces / 16;
  const auto step = [&] {
    const uint64_t moved = move_piece(sample.traffic, slice.bytes.subspan(next * piece, piece));
    next = next + 1 == pieces ? 0 : next + 1;
    return moved;
  };
  // An eighth before the clock starts: cores wake and raise their frequency.
  const base::TimeNs warm_until = now_ns() + sample.window_ns / 8;
  while (now_ns() < warm_until && !stop.load(std::memory_order_relaxed)) step();
  times.begin = now_ns();
  do {
    times.bytes += step();
    times.end = now_ns();
  } while (times.end - times.begin < sample.window_ns && !stop.load(std::memory_order_relaxed));
}

}  // namespace

base::Result<double> sample_bandwidth(std::span<const StreamSlice> slices,
                                      const BandwidthSample& sample,
                                      const std::atomic<bool>& stop) {
  std::vector<StreamTimes> times(slices.size());
  std::vector<int> cpus;
  for (const StreamSlice& slice : slices) cpus.push_back(slice.cpu);
  RETURN_IF_ERROR(
      run_pinned(cpus, [&](size_t i) { run_stream(slices[i], sample, stop, times[i]); }));
  base::TimeNs begin = times.front().begin, end = times.front().end;
  uint64_t bytes = 0;
  for (const StreamTimes& own : times) {
    begin = std::min(begin, own.begin);
    end = std::max(end, own.end);
    bytes += own.bytes;
  }
  return static_cast<double>(bytes) / static_cast<double>(std::max<base::TimeNs>(end - begin, 1));
}

base::Result<Chain> Chain::create(const ProbeMemory& memory, std::span<const int> cpus) {
  int bits = 0;
  while ((kLineBytes << (bits + 1)) <= memory.bytes()) ++bits;
  const size_t lines = size_t{1} << bits;
  RETURN_IF_ERROR(run_pinned(cpus, [&](size_t i) {
    write_chain(memory.data(), bits, i * lines / cpus.size(), (i + 1) * lines / cpus.size());
  }));
  return Chain(memory.data());
}

base::Result<double> Chain::sample(int cpu, size_t hops) {
  base::TimeNs taken = 0;
  RETURN_IF_ERROR(run_pinned(std::span(&cpu, 1), [&](size_t) {
    at_ = chase(at_, hops / 8);  // the core wakes
    const base::TimeNs begin = now_ns();
    at_ = chase(at_, hops);
    taken = now_ns() - begin;
  }));
  return static_cast<double>(taken) / static_cast<double>(hops);
}

namespace {

struct alignas(128) Word {
  std::atomic<uint32_t> value{0};  // release by one thread, acquire by the other
};

/// Spins until the word has come to `wanted`; false if asked to stop before.
bool await_word(const Word& word, uint32_t wanted, const std::atomic<bool>& stop) {
  constexpr int kLooksBetweenStops = 1 << 12;
  for (int looks = 1; word.value.load(std::memory_order_acquire) < wanted; ++looks)
    if (looks % kLooksBetweenStops == 0 && stop.load(std::memory_order_relaxed)) return false;
  return true;
}

}  // namespace

base::Result<double> sample_line(int cpu_a, int cpu_b, int batches, const std::atomic<bool>& stop) {
  constexpr uint32_t kBatch = 200;
  const uint32_t rounds = static_cast<uint32_t>(batches + 1) * kBatch;
  Word ping, pong;
  std::vector<double> batch_ns;
  const auto lead = [&] {
    base::TimeNs begin = now_ns();
    for (uint32_t i = 1; i <= rounds; ++i) {
      ping.value.store(i, std::memory_order_release);
      if (!await_word(pong, i, stop)) return;
      if (i % kBatch != 0) continue;
      const base::TimeNs now = now_ns();
      // Without the first, in which both wake.
      if (i > kBatch) batch_ns.push_back(static_cast<double>(now - begin));
      begin = now;
    }
  };
  const auto follow = [&] {
    for (uint32_t i = 1; i <= rounds; ++i) {
      if (!await_word(ping, i, stop)) return;
      pong.value.store(i, std::memory_order_release);
    }
  };
  const int cpus[] = {cpu_a, cpu_b};
  RETURN_IF_ERROR(run_pinned(cpus, [&](size_t i) { i == 0 ? lead() : follow(); }));
  return spread_of(std::move(batch_ns)).median / kBatch / 2;
}

}  // namespace shm
