// Which split is best: every way to spread a model over a machine, with what it takes and how fast
// it will be, and the choice among them.
//
// Pure functions of a model's directory (no tensor data), a machine and a request. Predictions are
// of the time between two tokens: for each product the slowest rank's bytes by its bandwidth or
// operations by its kernels, plus KV cache, meetings and what is handed over. docs/planning.md says
// how. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "plan/machine.h"
#include "plan/plan.h"

namespace plan {

enum class Objective {
  kLatency,     // the fastest answer to a single request
  kThroughput,  // most tokens a second with `parallel` requests at once
};

/// How tensors lie in memory: a function of the kernels, which this folder does not know.
struct Packing {
  /// Bytes of 16 packed rows of so many weights.
  std::function<uint64_t(kernels::TensorType, int64_t)> panel_bytes;
  /// Whether rows are rearranged for a fast product; else they stay as in the file.
  std::function<bool(kernels::TensorType)> is_fast;
};

/// How an element of the KV cache is kept: the facts of kernels/kv_type.h, which this folder does
/// not know.
struct KvElement {
  std::string_view name = "f16";
  int bytes = 2;
  int scale_bytes = 0;  // of each started group of 32 dimensions of a head
  /// Of K or V of one position in a head of so many dimensions.
  int64_t row_bytes(int64_t dims) const { return dims * bytes + (dims + 31) / 32 * scale_bytes; }
};

struct Request {
  Objective objective = Objective::kLatency;
  int64_t context = 0;  // positions of one sequence; 0: the model's own, at most 4096
  int parallel = 1;     // sequences at once
  int64_t depth = 0;    // positions before the token that is predicted; 0: 512, or the context
  KvElement kv = {};
  int chunk = 256;                        // positions of a prefill step
  std::optional<Strategy> strategy = {};  // only this one; empty: all
  int stages = 0;                         // of kLayers; 0: all that make sense
  int nodes = 0;                          // of all replicas together; 0: as many as serve best
  int replicas = 0;                       // 0: as many as serve best
  std::vector<double> shares = {};        // by rank of a replica; empty: by bandwidth
  /// [layers][experts] how often each was chosen; empty: equally often. Predictions of all
  /// strategies go by it, and whole experts are dealt out by it.
  std::vector<std::vector<double>> expert_use = {};
};

/// Bytes that a rank takes on its node.
struct RankMemory {
  uint64_t weights = 0, kv = 0, exchange = 0, scratch = 0;
  uint64_t total() const { return weights + kv + exchange + scratch; }
};

/// A rank of a candidate.
struct RankPlan {
  int node = 0;            // index into Machine::nodes
  int threads = 0;         // that compute
  int decode_threads = 0;  // the fewest that decode as fast as all, within 1 %
  double share = 1;        // of the work of its replica
  RankMemory memory;
  uint64_t node_bytes = 0;     // that its node has to offer
  uint64_t active_bytes = 0;   // weights read for a token of one sequence
  uint64_t kv_read_bytes = 0;  // of the KV cache, at the depth
  double read_seconds = 0;     // of a token of one sequence
};

struct Speed {
  double decode = 0;   // tokens a second
  double prefill = 0;  // prompt tokens a second
};

/// Where the time of a token goes, in seconds.
struct TimeParts {
  double weights = 0, kv = 0, compute = 0, waits = 0, handed = 0;
  double total() const { return weights + kv + compute + waits + handed; }
};

/// One way to spread the model.
struct Candidate {
  Strategy strategy = Strategy::kRows;
  int replicas = 1;
  int stages = 1;               // of kLayers
  std::vector<RankPlan> ranks;  // [replicas * ranks of a replica], replica after replica
  int waits = 0;                // per token of one sequence, all layers
  uint64_t gathered_bytes = 0;  // per token, over all gathers
  Speed one;                    // a single request
  Speed all;                    // `parallel` requests, together
  TimeParts decode_time;        // of a token of a single request
  std::string limit;            // what decode waits for, in words
  std::string prefill_limit;
  std::string misfit;                // why it does not fit; empty: it does
  std::vector<std::string> remarks;  // imbalance, copies of KV heads

  bool fits() const { return misfit.empty(); }
  int ranks_per_replica() const { return static_cast<int>(ranks.size()) / replicas; }
  /// "rows", "2 replicas x rows over 3", "layers in 2 stages x rows over 4"
  std::string name() const;
};

/// The options of split() that make a replica of this candidate.
SplitOptions split_options(const Candidate& candidate, const Request& request);

/// All that make sense, the best for the objective first, those that do not fit last. Never empty.
/// Errors: kInvalidArgument for wishes that this model or machine has nothing for.
base::Result<std::vector<Candidate>> candidates(const model::Model& model, const Machine& machine,
                                                const Packing& packing, const Request& request);

/// So many threads of a rank are to decode; 0: all of them. Fewer only where the bandwidth by
/// number of threads was measured.
int decode_threads(const Candidate& candidate, const Machine& machine);

/// The best of them and why.
struct Choice {
  std::optional<size_t> index;  // none fits
  std::string why;              // one sentence
};
Choice choose(const std::vector<Candidate>& candidates, const Request& request);

}  // namespace plan
