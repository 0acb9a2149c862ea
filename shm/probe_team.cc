#include "shm/probe_team.h"

#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/cat.h"
#include "shm/futex.h"
#include "shm/pin.h"

namespace shm {

namespace {

/// Where the threads of one run wait for each other. Spinning also wakes cores that sleep.
class StartGate {
 public:
  explicit StartGate(size_t threads) : missing_(threads) {}

  void fail(base::Error error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_.ok()) error_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  /// True once all are here, false if one failed.
  bool pass() {
    missing_.fetch_sub(1, std::memory_order_acq_rel);
    constexpr int kPausesBeforeYield = 1000;  // several threads may share a CPU
    for (int pauses = 0; missing_.load(std::memory_order_acquire) > 0; ++pauses) {
      if (failed_.load(std::memory_order_acquire)) return false;
      if (pauses < kPausesBeforeYield)
        pause();
      else
        std::this_thread::yield();
    }
    return !failed_.load(std::memory_order_acquire);
  }
  base::Status error() const { return error_; }

 private:
  std::atomic<size_t> missing_;      // acq_rel: the last arrival lets the others go
  std::atomic<bool> failed_{false};  // release after error_, acquire before it is read
  std::mutex mutex_;
  base::Status error_;  // guarded by mutex_ until all threads have ended
};

}  // namespace

base::Status run_pinned(std::span<const int> cpus, const std::function<void(size_t)>& work) {
  StartGate gate(cpus.size());
  std::vector<std::thread> threads;
  threads.reserve(cpus.size());
  for (size_t i = 0; i < cpus.size(); ++i) {
    try {
      threads.emplace_back([&gate, &work, i, cpu = cpus[i]] {
        // Arrives also after a failure, so that nobody misses a failure that comes late.
        if (const auto pinned = pin_thread(cpu); !pinned.ok()) gate.fail(pinned.error());
        if (gate.pass()) work(i);
      });
    } catch (const std::system_error& error) {
      gate.fail({base::Code::kUnavailable, base::cat("the system gives only ", i, " of ",
                                                     cpus.size(), " threads: ", error.what(),
                                                     "; see ulimit -u and the cgroup's pids.max")});
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  return gate.error();
}

}  // namespace shm
