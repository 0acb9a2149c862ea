// A worker process of the simulation: a real Worker, a scripted model, loading, steps that take
// time, and an end at any point.
//
// As in worker/worker_process.cc, a process that loads or computes hears nothing meanwhile, and
// what a step gave leaves when the step is over. Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/wire.h"
#include "worker/worker.h"

namespace sim {

/// The scripted model, with bugs and failures as the simulation wants.
class SimRunner final : public engine::StepRunner {
 public:
  SimRunner(const World& world, std::function<base::Status()> may_run)
      : world_(world), may_run_(std::move(may_run)), inner_(world.scenario.runner) {}

  engine::RunnerShape shape() const override { return inner_.shape(); }
  base::Result<engine::StepOutput> run(const engine::Step& step) override;

  /// Columns of the steps since the last call.
  size_t take_columns() { return std::exchange(columns_, 0); }

 private:
  const World& world_;
  const std::function<base::Status()> may_run_;
  worker::ScriptedRunner inner_;
  size_t columns_ = 0;
};

class WorkerProcess {
 public:
  /// What the other ranks are to it.
  struct Others {
    /// All ranks of this epoch are there and load or have loaded.
    std::function<bool(uint64_t epoch)> met;
    /// All ranks of this epoch are there and ready.
    std::function<bool(uint64_t epoch)> intact;
  };

  WorkerProcess(const World& world, Wire& wire, Random& random, int rank, uint64_t incarnation,
                Others others);

  const std::string& name() const { return name_; }
  const worker::Worker& worker() const { return worker_; }
  /// When it has something to do.
  base::TimeNs wake() const;
  /// REQUIRES: wake() has come.
  void run();
  /// It is gone: stopped, failed, or dead.
  bool ended() const { return ended_; }

  /// From now on each step takes this long.
  void set_step_time(base::TimeNs step) { step_min_ = step_max_ = step; }

  // Faults.
  void repeat_hello() { wire_.repeat_hello(*channel_, name_); }
  void stall(base::TimeNs until) { stalled_until_ = until; }
  void fail_next_step() { fail_next_step_ = true; }
  /// Dies in the middle of sending.
  void die_after_sends(int count) { sends_left_ = count; }
  /// None of the faults that have not happened yet.
  void heal() {
    fail_next_step_ = load_fails_ = false;
    sends_left_.reset();
  }

 private:
  bool leads() const { return rank_ == 0; }
  void load();
  void flush();
  base::Status may_run();

  const World& world_;
  Wire& wire_;
  Random& random_;
  const int rank_;
  const std::string name_;
  const Others others_;
  std::unique_ptr<proto::Channel> channel_;
  SimRunner runner_;
  worker::Worker worker_;
  base::TimeNs step_min_, step_max_;
  base::TimeNs busy_until_ = 0;  // hears nothing before
  base::TimeNs tick_at_ = 0;
  base::TimeNs stalled_until_ = 0;
  std::optional<base::TimeNs> loaded_at_, join_deadline_;
  bool load_fails_ = false;
  bool fail_next_step_ = false;
  bool ended_ = false;
  std::optional<int> sends_left_;
  std::vector<proto::Message> unsent_;
};

}  // namespace sim
