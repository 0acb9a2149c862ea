// What a request must answer, by the plainest loop over the scripted model and the sampler.
//
// It shares no code with the path under test: no runner, no cache, no batches, no messages.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/sampler.h"
#include "proto/messages.h"
#include "tests/worker/scripted_runner.h"

namespace sim {

/// The model that all requests of a simulation meet.
struct OracleModel {
  worker::ScriptedOptions runner = {};
  int32_t token_count = 0;
};

/// Why a request must end with an error, whatever happens; nothing: it is served.
std::optional<base::Code> doomed(const OracleModel& model, const proto::GenerateRequest& request);
std::optional<base::Code> doomed(const OracleModel& model, const proto::ScoreRequest& request);

/// Token after token of one request.
class GenerateOracle {
 public:
  GenerateOracle(const OracleModel& model, proto::GenerateRequest request);

  struct Next {
    int32_t token = 0;
    proto::Finish finish = proto::Finish::kNone;  // the answer ends with this token
  };
  /// REQUIRES: no finish yet.
  Next next();
  bool ended() const { return ended_; }
  /// The prompt and what next() gave so far.
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  const OracleModel model_;
  const proto::GenerateRequest request_;
  engine::SamplingParams sampling_;
  engine::Sampler sampler_;
  std::vector<int32_t> tokens_;
  uint64_t state_ = worker::kScriptedStart;
  int64_t generated_ = 0;
  bool ended_ = false;
};

/// Everything that a score request answers.
struct ScoreAnswer {
  std::vector<float> log_probabilities;
  std::vector<int32_t> top_ids;
  std::vector<float> top_logits;
  std::vector<float> last_logits;
};
ScoreAnswer score_oracle(const OracleModel& model, const proto::ScoreRequest& request);

}  // namespace sim
