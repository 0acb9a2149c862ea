// How a model is spread over this host: what the options fix, and for the rest what the planner
// finds best.
//
// The planner chooses only where there is something to choose: with --strategy auto, on real nodes
// of which there are several. Whatever is fixed or chosen is predicted, so that it can be told
// before anything is loaded. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/options.h"
#include "plan/plan.h"
#include "plan/planner.h"
#include "shm/topology.h"

namespace cli {

struct Layout {
  plan::Strategy strategy = plan::Strategy::kRows;  // inside each group
  int stages = 0;
  int decode_threads = 0;                   // of a rank; 0: all
  std::vector<shm::Placement> groups = {};  // where the ranks of each go; at least one
  std::string text = {};                    // the plan for people, some lines
};

/// Errors: kInvalidArgument for nodes, CPUs and replicas that do not go together; a model file that
/// cannot be read or has nothing for the strategy.
base::Result<Layout> choose_layout(const Options& options, base::Log& log);

/// The same of `machine`, without a look at this one. `profile` is what was measured on it, or
/// nullptr.
struct LayoutInput {
  const Options& options;
  const model::Model& model;
  const shm::Topology& topology;  // that may be used
  const shm::Placement& whole;    // a rank for each place
  const shm::MachineProfile* profile = nullptr;
  /// [layers][experts] how often each was chosen; empty: not counted.
  std::vector<std::vector<double>> expert_use = {};
};
base::Result<Layout> choose_layout(const LayoutInput& input);

/// What is asked of the planner as the options say it.
plan::Request plan_request(const Options& options);
/// How its KV cache is kept: --kv-type, or what is usual with --isa.
plan::KvElement plan_kv(const Options& options);

/// How the kernels of these options lay out tensors. Errors: kInvalidArgument naming --isa.
base::Result<plan::Packing> plan_packing(const Options& options);

}  // namespace cli
