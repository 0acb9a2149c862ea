#include "engine/team.h"

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "shm/futex.h"
#include "shm/pin.h"

namespace engine {

namespace {

// A sleeper looks again after this long even if nobody wakes it.
constexpr base::TimeNs kNap = 100'000'000;

// Waits until `word` differs from `old`: spins, then sleeps. Acquire.
template <class Stop>
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t old,
                     std::atomic<uint32_t>& sleepers, base::TimeNs spin_ns, Stop stop) {
  base::TimeNs until = 0;
  do {
    for (int i = 0; i < kSpinPauses; i++) {
      if (word.load(std::memory_order_acquire) != old || stop()) return;
      shm::pause();
    }
    if (spin_ns > 0 && until == 0) until = base::SteadyClock().now() + spin_ns;
  } while (spin_ns > 0 && base::SteadyClock().now() < until);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (word.load(std::memory_order_seq_cst) == old && !stop()) {
    shm::futex_wait(word, old, kNap);
  }
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace

Barrier::Barrier(int threads)
    : groups_(std::make_unique<Line[]>(static_cast<size_t>((threads + kGroup - 1) / kGroup))),
      threads_(threads) {}

// Relaxed: who arrives next has been let go by the last arrival's release.
bool Barrier::is_last(Line& line, int expected) {
  if (line.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < expected) return false;
  line.arrived.store(0, std::memory_order_relaxed);
  return true;
}

base::Wait Barrier::arrive_and_wait(int thread) {
  if (threads_ == 1) return base::Wait::kOk;
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  const int group = thread / kGroup, groups = (threads_ + kGroup - 1) / kGroup;
  if (is_last(groups_[static_cast<size_t>(group)], std::min(kGroup, threads_ - group * kGroup)) &&
      (groups == 1 || is_last(root_, groups))) {
    generation_.store(generation + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) shm::futex_wake_all(generation_);
    return base::Wait::kOk;
  }
  wait_for_change(generation_, generation, sleepers_, spin_ns_,
                  [this] { return aborted_.load(std::memory_order_acquire); });
  return aborted_.load(std::memory_order_acquire) ? base::Wait::kAborted : base::Wait::kOk;
}

void Barrier::abort() {
  aborted_.store(true, std::memory_order_seq_cst);
  shm::futex_wake_all(generation_);
}

ThreadTeam::ThreadTeam(int size)
    : size_(size),
      all_(static_cast<size_t>(size)),
      seats_(std::make_unique<Seat[]>(static_cast<size_t>(size))) {
  std::iota(all_.begin(), all_.end(), 0);
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
  stop_ = true;
  for (int t = 1; t < size_; t++) call(seats_[static_cast<size_t>(t)]);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::call(Seat& seat) {
  seat.calls.fetch_add(1, std::memory_order_seq_cst);
  if (seat.asleep.load(std::memory_order_seq_cst) != 0) shm::futex_wake_all(seat.calls);
}

void ThreadTeam::run(const std::function<void(int)>& job, std::span<const int> members) {
  CHECK(!members.empty());
  job_ = &job;
  done_.store(0, std::memory_order_relaxed);
  uint32_t others = 0;
  for (const int t : members) {
    if (t == 0) continue;
    others++;
    call(seats_[static_cast<size_t>(t)]);
  }
  if (members[0] == 0) job(0);
  // A caller that takes part is about as far as the others; one that does not sleeps a whole job.
  for (uint32_t done; (done = done_.load(std::memory_order_acquire)) != others;) {
    wait_for_change(done_, done, caller_asleep_, 0, [] { return false; });
  }
}

void ThreadTeam::thread_main(int thread) {
  Seat& seat = seats_[static_cast<size_t>(thread)];
  for (uint32_t seen = 0;; seen++) {
    while (seat.calls.load(std::memory_order_acquire) == seen) {
      wait_for_change(seat.calls, seen, seat.asleep, 0, [] { return false; });
    }
    if (stop_) return;
    (*job_)(thread);
    done_.fetch_add(1, std::memory_order_seq_cst);
    if (caller_asleep_.load(std::memory_order_seq_cst) != 0) shm::futex_wake_all(done_);
  }
}

}  // namespace engine
