// How long a step takes on one replica: for each part of a layer the slowest rank, then the wait.
//
//   part of a layer, one rank:  max( bytes / bandwidth of its threads,
//                                    weights x time of a weight with so many columns / threads )
//   step:  sum over layers and parts of ( the slowest rank's + preparing + wait + what is handed )
//
// Pure functions; any thread. docs/planning.md explains every term.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "plan/footprint.h"
#include "plan/machine.h"
#include "plan/planner.h"

namespace plan {

/// What all candidates have in common. Borrows everything.
struct Question {
  const model::Model& model;
  const Machine& machine;
  const Packing& packing;
  const Request& request;

  int64_t context() const;  // positions of a sequence
  int64_t depth() const;    // before the token that is predicted
};

/// A step: columns are tokens.
struct Load {
  int64_t columns = 1;
  int64_t sequences = 1;  // that they belong to
  int64_t position = 0;   // of a column in its sequence, on average
  int64_t logits = 1;     // columns that want them
};

struct StepCost {
  TimeParts time;
  uint64_t gathered_bytes = 0;
  int waits = 0;
  std::vector<double> read_seconds;  // [ranks] at their bandwidth
  std::vector<uint64_t> read_bytes;  // [ranks] weights
};

/// One replica with everything that does not depend on the step. Borrows nothing.
class Replica {
 public:
  struct Rank {
    MachineNode node;
    int threads = 1;
  };
  Replica(const Question& question, const Plan& plan, std::vector<Rank> ranks);

  StepCost step(const Load& load) const;
  /// The same with other threads on every rank: as many of the node's as there are at most.
  StepCost step_with(const Load& load, int threads_max) const;

 private:
  /// Layers that are alike for all ranks.
  struct Kind {
    size_t layer = 0;  // the first of them
    int count = 0;
    model::Block block;
    std::vector<std::vector<Piece>> pieces = {};  // [ranks]
    std::vector<BlockShare> shares = {};          // [ranks]
    HandedFloats handed = {};
    std::vector<size_t> members = {};
    std::vector<double> chances = {};  // [experts] that a token chooses it; empty: all alike
  };
  struct Spent;   // of one part of a layer
  struct Chosen;  // experts of one rank

  bool alike(const Kind& kind, const Kind& other) const;
  void add_layer(const Kind& kind, const Load& load, int threads_max, StepCost& cost) const;
  void add_phase(const Kind& kind, Phase phase, const Load& load, int threads_max,
                 StepCost& cost) const;
  void add_ends(const Load& load, int threads_max, StepCost& cost) const;
  void add_attention(const Kind& kind, const Load& load, int threads_max, StepCost& cost) const;
  void add_outputs(const Kind& kind, const Load& load, int threads_max, StepCost& cost) const;
  void add_prepared(int64_t values, const Load& load, int threads_max, StepCost& cost) const;
  /// Columns that one thread prepares or chooses for: many are shared, which takes a barrier.
  double shared_columns(const Load& load, int threads_max, StepCost& cost) const;
  void add_gather(const std::vector<size_t>& members, int64_t floats, const Load& load,
                  StepCost& cost) const;
  void add_barrier(StepCost& cost) const;
  Spent spent_on(const Kind& kind, size_t rank, Phase phase, const Load& load,
                 int threads_max) const;
  Chosen chosen_on(const Kind& kind, size_t rank, double columns) const;

  Machine machine_;
  std::vector<Rank> ranks_;
  std::vector<Kind> kinds_;
  Kind ends_;
  int64_t hidden_ = 0, vocabulary_ = 0;
  int stages_ = 1;
  KvElement kv_;
};

/// Experts of `count` that `columns` tokens choose together, `used` each, if all are equally
/// likely.
double distinct_experts(int count, int used, double columns);

/// How many of `chosen` distinct experts the fullest of `ranks` equal ranks gets, on average, over
/// its even share; 0 for one rank. `count` in all. A normal approximation.
double experts_in_excess(double chosen, int count, double share, int ranks);

}  // namespace plan
