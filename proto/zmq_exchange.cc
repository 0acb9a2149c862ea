#include "proto/zmq_exchange.h"

#include "base/limits.h"

namespace proto {

namespace {

/// Tells the core that this is a spin loop.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

ZmqExchange::ZmqExchange(ZmqMesh& mesh, int threads) : mesh_(mesh), threads_(threads) {
  CHECK(threads >= 1 && threads <= base::kThreadsPerRankMax, threads, " threads");
}

base::Wait ZmqExchange::arrive_and_wait(const base::Gather& gather) {
  CHECK(gather.bytes <= slice_bytes_max(), "a slice of ", gather.bytes, " bytes, at most ",
        slice_bytes_max());
  CHECK(gather.members.contains(rank()), "rank ", rank(), " is no member of gather ",
        gather.sequence);
  if (const base::Wait state = mesh_.state(); state != base::Wait::kOk) [[unlikely]] {
    return state;
  }
  // Release: my part of the slice. Acquire: the parts of those who came before me.
  if (arrived_.fetch_add(1, std::memory_order_seq_cst) + 1 < threads_) {
    return await_turn(gather.sequence);
  }
  // The next arrivals come after the turn, which releases this store to them.
  arrived_.store(0, std::memory_order_relaxed);
  return mesh_.gather(gather);
}

base::Wait ZmqExchange::await_turn(uint64_t sequence) {
  std::atomic<uint32_t>& turn = mesh_.turn();
  const uint32_t target = static_cast<uint32_t>(sequence + 1) << 1;
  for (int pauses = mesh_.options().wait.spin_pauses;; pauses--) {
    const uint32_t value = turn.load(std::memory_order_acquire);
    // Numbers are less than 2^31 apart, so they may wrap; odd: the group has ended.
    if (static_cast<int32_t>(value - target) >= 0) return base::Wait::kOk;
    if ((value & 1) != 0) return mesh_.state();
    if (pauses > 0) {
      pause();
    } else {
      // Bounded by whoever gathers, or by the end of the group.
      turn.wait(value, std::memory_order_acquire);
    }
  }
}

}  // namespace proto
