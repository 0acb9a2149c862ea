// The compute threads of one rank: started once, pinned, woken for each job, and a barrier between
// them.
//
// The thread that calls run() is thread 0. Waits spin for a while, then sleep in a futex, so that a
// busy neighbour on the same CPU gets its turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/exchange.h"
#include "base/result.h"

namespace engine {

/// How long a waiter spins before it sleeps, in pause instructions.
inline constexpr int kSpinPauses = 2000;

/// A barrier for a fixed number of threads that a failing thread can break.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(static_cast<uint32_t>(threads)) {}

  /// Returns kOk when all threads arrived, kAborted once the barrier is broken. Release on arrival,
  /// acquire on return.
  base::Wait arrive_and_wait();
  /// All present and future waits return kAborted. Any thread.
  void abort();

 private:
  // constant after construction
  const uint32_t threads_;
  // shared, atomic
  alignas(64) std::atomic<uint32_t> arrived_{0};  // acq_rel: the last one sees all others' writes
  alignas(64) std::atomic<uint32_t> generation_{0};  // release by the last, acquire by waiters
  alignas(64) std::atomic<uint32_t> sleepers_{0};    // seq_cst with generation_: no lost wake-up
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
  void run(const std::function<void(int)>& job);

 private:
  explicit ThreadTeam(int size) : size_(size) {}
  void thread_main(int thread);

  // constant after construction
  const int size_;
  std::vector<std::thread> threads_;
  // written by the caller before generation_ is raised
  const std::function<void(int)>* job_ = nullptr;
  // shared, atomic
  alignas(64) std::atomic<uint32_t> generation_{0};  // release by run(), acquire by threads
  alignas(64) std::atomic<uint32_t> sleepers_{0};    // seq_cst with generation_
  alignas(64) std::atomic<uint32_t> done_{0};        // acq_rel: run() sees the job's writes
  std::atomic<bool> stop_{false};                    // written before generation_ is raised
};

}  // namespace engine
