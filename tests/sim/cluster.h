// A whole cluster in one thread: broker, workers, the supervisor that starts them again.
//
// Event-driven: turn() moves the clock to whoever is next and lets that one run. Thread rule: one
// thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/worker_process.h"

namespace sim {

class Cluster {
 public:
  explicit Cluster(const World& world);

  /// When something happens next.
  base::TimeNs next_event() const;
  /// Lets everybody run whose time has come.
  void run_due();

  /// nullptr while it is down.
  broker::Broker* broker() { return broker_.get(); }
  /// After a call of the broker: sends and reports what it left behind.
  void flush_broker();
  /// No more faults; this share of messages is lost.
  void heal(double lost);

  /// Nothing is under way or kept anywhere, and the group is ready.
  bool quiet() const;
  /// That the leader keeps; 0 without one.
  size_t leader_requests() const;
  void set_step_time(base::TimeNs step);
  /// What the faults do, when there are none.
  void crash_worker(int rank) { end_worker(rank); }
  void crash_broker() { end_broker(); }
  /// Nothing passes to or from this rank for so long.
  void cut(int rank, base::TimeNs length) {
    wire_.cut(rank, {.until = world_.clock.now() + length, .from_rank = true, .to_rank = true});
  }
  /// Whether a worker of this rank has loaded for a group that is not `epoch`'s.
  bool has_loaded_since(int rank, uint64_t epoch) const;
  /// That have been started so far.
  uint64_t incarnations() const { return incarnations_; }
  /// The broker tells everybody to stop; who ends is not started again.
  void shut_down();
  bool all_ended() const { return workers_.empty(); }

  // Faults.
  void inject(Fault fault, Random& random);

 private:
  struct Notice {
    base::TimeNs at = 0;
    std::string name;
  };

  void start_worker(int rank);
  void end_worker(int rank);
  void run_worker(int rank);
  void start_broker();
  void end_broker();
  void run_broker();
  void report_events();
  void hear(const proto::Received& received);
  base::TimeNs broker_wake() const;
  bool all_ranks(uint64_t epoch, const std::function<bool(const worker::Worker&)>& is) const;
  void note(int who, const char* what, uint64_t number = 0);

  const World& world_;
  Random random_;
  Wire wire_;
  std::map<int, std::unique_ptr<WorkerProcess>> workers_;  // by rank, the living ones
  std::map<int, base::TimeNs> restarts_;                   // by rank
  std::vector<Notice> notices_;                            // to the broker, of ended workers
  uint64_t incarnations_ = 0, generation_ = 1;
  std::unique_ptr<Memory> memory_;  // of the leader, or of the one before
  bool restarting_ = true, healed_ = false;

  std::unique_ptr<proto::Channel> broker_channel_;
  std::unique_ptr<broker::Broker> broker_;
  uint64_t broker_incarnation_ = 0;
  base::TimeNs broker_tick_at_ = 0, broker_stalled_until_ = 0;
  std::optional<base::TimeNs> broker_restart_;
  base::TimeNs adopts_until_ = 0;
  std::optional<int> broker_sends_left_;
};

}  // namespace sim
