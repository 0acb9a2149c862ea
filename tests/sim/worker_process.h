// A worker process of the simulation: a real Worker, a scripted model, loading, steps that take
// time, and an end at any point.
//
// As in worker/worker_process.cc, a process that loads or computes hears nothing meanwhile, what it
// heard is answered before a step, and what the step gave leaves when it is over. Thread rule: one
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/wire.h"
#include "tests/worker/remembered_blocks.h"
#include "worker/worker.h"

namespace sim {

/// What may outlive a leader: the KV pool, and what is sealed in it.
struct Memory {
  worker::ScriptedRunner runner;
  worker::RememberedBlocks sealed;
  std::set<int32_t> cursed;  // first blocks of sequences that end workers
};

/// The scripted model, with bugs and failures as the simulation wants.
class SimRunner final : public engine::StepRunner {
 public:
  SimRunner(const World& world, Memory& memory, std::function<base::Status(bool)> may_run)
      : world_(world), memory_(memory), may_run_(std::move(may_run)) {}

  engine::RunnerShape shape() const override { return memory_.runner.shape(); }
  base::Result<engine::StepOutput> run(const engine::Step& step) override;

  /// Columns of the steps since the last call.
  size_t take_columns() { return std::exchange(columns_, 0); }

 private:
  /// Whether this step ends a worker.
  bool kills(const engine::Step& step);

  const World& world_;
  Memory& memory_;
  const std::function<base::Status(bool)> may_run_;
  size_t columns_ = 0;
};

class WorkerProcess {
 public:
  /// What the other ranks are to it.
  struct Others {
    /// All ranks of this epoch are there and load or have loaded.
    std::function<bool(uint64_t epoch)> met;
    /// All ranks are there, ready in this epoch.
    std::function<bool(uint64_t epoch)> joined;
    /// All ranks that load or have loaded in this epoch are there.
    std::function<bool(uint64_t epoch)> intact;
    std::function<bool()> has_broker;
    /// Ends a rank.
    std::function<void(int rank)> kill;
  };
  struct Birth {
    int rank = 0;
    uint64_t incarnation = 0;
    uint64_t generation = 0;  // of the group it is started with
    Memory* memory = nullptr;
  };

  WorkerProcess(const World& world, Wire& wire, Random& random, const Birth& birth, Others others);

  const std::string& name() const { return name_; }
  const worker::Worker& worker() const { return worker_; }
  /// When it has something to do.
  base::TimeNs wake() const;
  /// REQUIRES: wake() has come.
  void run();
  /// It is gone: stopped, failed, or dead.
  bool ended() const { return ended_; }
  uint64_t generation() const { return birth_.generation; }
  /// The epoch in which it loads or has loaded, and meets the others; 0: it has none yet.
  uint64_t loaded_in() const { return loaded_in_; }

  /// From now on each step takes this long.
  void set_step_time(base::TimeNs step) { step_min_ = step_max_ = step; }

  // Faults.
  void repeat_hello() { wire_.repeat_hello(*channel_, name_); }
  void stall(base::TimeNs until) { stalled_until_ = until; }
  void fail_next_step() { fail_next_step_ = true; }
  /// Dies at once, whatever it does.
  void die() { killed_ = true; }
  /// Dies in the middle of sending.
  void die_after_sends(int count) { sends_left_ = count; }
  /// None of the faults that have not happened yet.
  void heal() {
    fail_next_step_ = load_fails_ = false;
    sends_left_.reset();
  }

 private:
  bool leads() const { return birth_.rank == 0; }
  void load();
  void watch();
  void flush();
  base::Status may_run(bool kills);

  const World& world_;
  Wire& wire_;
  Random& random_;
  const Birth birth_;
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
  base::TimeNs watch_at_ = 0;
  uint64_t loaded_in_ = 0;
  bool killed_ = false;
  bool load_fails_ = false;
  bool fail_next_step_ = false;
  bool ended_ = false;
  std::optional<int> sends_left_;
  std::vector<proto::Message> unsent_;
};

}  // namespace sim
