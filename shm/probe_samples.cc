#include "shm/probe_samples.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "base/cat.h"
#include "shm/futex.h"
#include "shm/probe_loops.h"
#include "shm/probe_team.h"

namespace shm {

namespace {

base::TimeNs now_ns() {
  return base::SteadyClock().now();
}

/// Time that the calling thread had a CPU.
base::TimeNs cpu_ns() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

/// What one thread did; on lines of its own, so that threads do not meet in their results.
struct alignas(128) StreamTimes {
  base::TimeNs passed = 0, on_cpu = 0;
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
  const base::TimeNs begin = now_ns(), begin_on_cpu = cpu_ns();
  do {
    times.bytes += step();
    times.passed = now_ns() - begin;
  } while (times.passed < sample.window_ns && !stop.load(std::memory_order_relaxed));
  times.on_cpu = std::max<base::TimeNs>(cpu_ns() - begin_on_cpu, 1);
}

}  // namespace

base::Result<Bandwidth> sample_bandwidth(std::span<const StreamSlice> slices,
                                         const BandwidthSample& sample,
                                         const std::atomic<bool>& stop) {
  std::vector<StreamTimes> times(slices.size());
  std::vector<int> cpus;
  for (const StreamSlice& slice : slices) cpus.push_back(slice.cpu);
  RETURN_IF_ERROR(
      run_pinned(cpus, [&](size_t i) { run_stream(slices[i], sample, stop, times[i]); }));
  Bandwidth result;
  double passed = 0, on_cpu = 0;
  for (const StreamTimes& own : times) {
    result.gb_per_s += static_cast<double>(own.bytes) / static_cast<double>(own.on_cpu);
    passed += static_cast<double>(own.passed);
    on_cpu += static_cast<double>(own.on_cpu);
  }
  result.cpu_share = std::min(1.0, on_cpu / std::max(passed, 1.0));
  return result;
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
  constexpr size_t kBatches = 10;
  const size_t batch = std::max<size_t>(hops / kBatches, 1);
  std::vector<double> batch_ns;
  RETURN_IF_ERROR(run_pinned(std::span(&cpu, 1), [&](size_t) {
    at_ = chase(at_, batch);  // the core wakes
    base::TimeNs begin = now_ns();
    for (size_t i = 0; i < kBatches; ++i) {
      at_ = chase(at_, batch);
      const base::TimeNs end = now_ns();
      batch_ns.push_back(static_cast<double>(end - begin));
      begin = end;
    }
  }));
  return spread_of(std::move(batch_ns)).median / static_cast<double>(batch);
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
