// The compute threads of one rank: started once, pinned, woken for each job, and a barrier between
// them.
//
// The thread that calls run() is thread 0. Each thread is called on a cache line of its own. Waits
// spin for a bounded time, then sleep in a futex.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/exchange.h"
#include "base/result.h"
#include "shm/counter.h"

namespace engine {

/// How long a thread without work spins before it sleeps, in pause instructions.
inline constexpr int kSpinPauses = 2000;

/// A barrier for some threads that a failing thread can break. Neighbours, which mostly share a
/// cache, arrive on a line of theirs; the last of each group arrives for it.
class Barrier {
 public:
  explicit Barrier(int threads);

  /// From now on so many threads arrive, [0, threads), at most as constructed. REQUIRES: none is
  /// in a wait.
  void set_threads(int threads) { threads_ = threads; }

  /// For threads that share their CPUs with each other: sleeping soon lets the awaited one run.
  /// Without it waiters spin for shm::kSpinInStep, which says why. REQUIRES: as set_threads().
  void sleep_soon() { spin_ns_ = 0; }

  /// Returns kOk when all threads arrived, kAborted once the barrier is broken. Release on arrival,
  /// acquire on return.
  base::Wait arrive_and_wait(int thread);
  /// All present and future waits return kAborted. Any thread.
  void abort();

 private:
  static constexpr int kGroup = 8;  // cores of a last-level cache, on many machines
  struct alignas(128) Line {        // cores fetch pairs of lines
    std::atomic<int> arrived{0};    // acq_rel: the last one sees all others' writes
  };

  /// Whether this arrival is the last of `expected`, and puts the line back then.
  static bool is_last(Line& line, int expected);

  const std::unique_ptr<Line[]> groups_;
  // written between waits
  int threads_;
  base::TimeNs spin_ns_ = shm::kSpinInStep;
  // shared, atomic
  Line root_;                                         // groups
  alignas(128) std::atomic<uint32_t> generation_{0};  // release by the last, acquire by waiters
  alignas(128) std::atomic<uint32_t> sleepers_{0};    // seq_cst with generation_: no lost wake-up
  std::atomic<bool> aborted_{false};
};

class ThreadTeam {
 public:
  /// Starts cpus.size() - 1 threads; thread t runs on OS CPU cpus[t], or unpinned where that is -1.
  /// Errors: a CPU that cannot be used. The calling thread is pinned too.
  static base::Result<std::unique_ptr<ThreadTeam>> start(const std::vector<int>& cpus);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  /// Calls job(t) on every thread t and returns when all have returned. One caller at a time.
  void run(const std::function<void(int)>& job) { run(job, all_); }
  /// The same on the threads `members`, ascending, at least one; the others are not woken.
  void run(const std::function<void(int)>& job, std::span<const int> members);

 private:
  /// Where one thread is called.
  struct alignas(128) Seat {
    std::atomic<uint32_t> calls{0};   // release by run(), acquire by the thread; seq_cst with
    std::atomic<uint32_t> asleep{0};  // this: no lost wake-up
  };

  explicit ThreadTeam(int size);
  void thread_main(int thread);
  void call(Seat& seat);

  // constant after construction
  const int size_;
  std::vector<int> all_;  // 0 … size - 1
  std::vector<std::thread> threads_;
  const std::unique_ptr<Seat[]> seats_;  // [size]
  // written by the caller before it calls the threads
  const std::function<void(int)>* job_ = nullptr;
  bool stop_ = false;
  // shared, atomic
  alignas(128) std::atomic<uint32_t> done_{0};  // acq_rel: run() sees the job's writes
  std::atomic<uint32_t> caller_asleep_{0};      // seq_cst with done_
};

}  // namespace engine
