#include "engine/team.h"

#include "shm/futex.h"
#include "shm/pin.h"

namespace engine {

namespace {

// A sleeper looks again after this long even if nobody wakes it.
constexpr base::TimeNs kNap = 100'000'000;

// Waits until `word` differs from `old`: spins, then sleeps. Acquire.
template <class Stop>
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t old,
                     std::atomic<uint32_t>& sleepers, Stop stop) {
  for (int i = 0; i < kSpinPauses; i++) {
    if (word.load(std::memory_order_acquire) != old || stop()) return;
    shm::pause();
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (word.load(std::memory_order_seq_cst) == old && !stop()) {
    shm::futex_wait(word, old, kNap);
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

base::Wait Barrier::arrive_and_wait() {
  if (threads_ == 1) return base::Wait::kOk;
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) shm::futex_wake_all(generation_);
    return base::Wait::kOk;
  }
  wait_for_change(generation_, generation, sleepers_,
                  [this] { return aborted_.load(std::memory_order_acquire); });
  return aborted_.load(std::memory_order_acquire) ? base::Wait::kAborted : base::Wait::kOk;
}

void Barrier::abort() {
  aborted_.store(true, std::memory_order_seq_cst);
  shm::futex_wake_all(generation_);
}

base::Result<std::unique_ptr<ThreadTeam>> ThreadTeam::start(const std::vector<int>& cpus) {
  CHECK(!cpus.empty());
  std::unique_ptr<ThreadTeam> team(new ThreadTeam(static_cast<int>(cpus.size())));
  if (cpus[0] >= 0) RETURN_IF_ERROR(shm::pin_thread(cpus[0]));
  std::vector<base::Status> pinned(cpus.size());
  for (int t = 1; t < team->size_; t++) {
    team->threads_.emplace_back([raw = team.get(), t] { raw->thread_main(t); });
  }
  team->run([&](int t) {
    const int cpu = cpus[static_cast<size_t>(t)];
    if (t > 0 && cpu >= 0) pinned[static_cast<size_t>(t)] = shm::pin_thread(cpu);
  });
  for (const base::Status& status : pinned) RETURN_IF_ERROR(status);
  return team;
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  shm::futex_wake_all(generation_);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run(const std::function<void(int)>& job) {
  if (size_ == 1) {
    job(0);
    return;
  }
  job_ = &job;
  done_.store(0, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) shm::futex_wake_all(generation_);
  job(0);
  // The others are about as far as this thread: they end together, so this wait only spins, and
  // gives up its CPU now and then where threads outnumber CPUs.
  const auto others = static_cast<uint32_t>(size_ - 1);
  for (int i = 0; done_.load(std::memory_order_acquire) != others; i++) {
    if (i < kSpinPauses) {
      shm::pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadTeam::thread_main(int thread) {
  uint32_t seen = 0;
  while (true) {
    do {
      wait_for_change(generation_, seen, sleepers_, [] { return false; });
    } while (generation_.load(std::memory_order_acquire) == seen);
    seen++;
    if (stop_.load(std::memory_order_relaxed)) return;
    (*job_)(thread);
    done_.fetch_add(1, std::memory_order_acq_rel);
  }
}

}  // namespace engine
