// A StepRunner without a model: logits are a hash of all tokens of the sequence so far.
//
// It keeps a KV cache as the real one does: the state of a position is stored in the block that the
// step names and read back for the next position. So a wrong block, position or order of columns
// gives other logits, and equal tokens mean that scheduling was right. Thread rule: one thread.
#pragma once

#include <functional>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "engine/step.h"

namespace worker {

inline uint64_t scripted_mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b * 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
/// What a position knows: `before` is that of the position before it, kScriptedStart at the first.
inline constexpr uint64_t kScriptedStart = 1;
inline uint64_t scripted_state(uint64_t before, int32_t token) {
  return scripted_mix(before, static_cast<uint64_t>(token));
}
inline float scripted_logit(uint64_t state, int64_t id) {
  return static_cast<float>(scripted_mix(state, static_cast<uint64_t>(id)) % 8191) / 1024;
}

struct ScriptedOptions {
  int64_t vocabulary = 97;
  int64_t context = 4096;
  int32_t kv_block_count = 64;
  int columns_max = 32;
  int logit_columns_max = 32;
  int32_t poison = -1;        // a column of this token has a router fault in layer 3
  int64_t fail_at_step = -1;  // that step, counted from 0, returns kPeerLost
  std::function<void(const engine::Step&)> before_step = {};
};

class ScriptedRunner final : public engine::StepRunner {
 public:
  explicit ScriptedRunner(ScriptedOptions options)
      : options_(std::move(options)),
        states_(static_cast<size_t>(options_.kv_block_count) * base::kKvBlockPositions) {}

  engine::RunnerShape shape() const override {
    return {options_.vocabulary, options_.context, options_.kv_block_count, options_.columns_max,
            options_.logit_columns_max};
  }

  base::Result<engine::StepOutput> run(const engine::Step& step) override {
    if (options_.before_step) options_.before_step(step);
    if (steps_++ == options_.fail_at_step)
      return base::Error{base::Code::kPeerLost, "rank 1 stopped answering"};
    CHECK(!step.columns.empty() && step.columns.size() <= size_t(options_.columns_max), "columns");
    CHECK(step.block_tables.size() <= size_t{base::kStepSequencesMax}, "sequences");
    logits_.clear();
    faults_.clear();
    for (const engine::Column& column : step.columns) {
      CHECK(column.token >= 0 && column.token < options_.vocabulary, "token ", column.token);
      CHECK(column.position >= 0 && column.position < options_.context, "position");
      const auto& table = step.block_tables.at(static_cast<size_t>(column.sequence));
      const uint64_t before =
          column.position == 0 ? kScriptedStart : state(table, column.position - 1);
      const uint64_t now = scripted_state(before, column.token);
      state(table, column.position) = now;
      faults_.push_back(column.token == options_.poison ? 3 : -1);
      if (!column.wants_logits) continue;
      for (int64_t id = 0; id < options_.vocabulary; id++)
        logits_.push_back(scripted_logit(now, id));
    }
    CHECK(logits_.size() <= static_cast<size_t>(options_.logit_columns_max * options_.vocabulary),
          "columns that want logits");
    return engine::StepOutput{logits_, faults_};
  }

  int64_t steps() const { return steps_; }

 private:
  uint64_t& state(const std::vector<int32_t>& table, int64_t position) {
    const auto block =
        static_cast<size_t>(table.at(static_cast<size_t>(position / base::kKvBlockPositions)));
    return states_.at(block * base::kKvBlockPositions +
                      static_cast<size_t>(position % base::kKvBlockPositions));
  }

  const ScriptedOptions options_;
  std::vector<uint64_t> states_;  // [kv_block_count][kKvBlockPositions]
  std::vector<float> logits_;
  std::vector<int32_t> faults_;
  int64_t steps_ = 0;
};

}  // namespace worker
