// The work of rank 0: requests in, steps through the runner, tokens out.
//
// A state machine without clock, socket or random source. Each request answers with chunks
// numbered 0, 1, 2, … of which the last one says how it finished; chunks stay here until they are
// acknowledged and are sent again if that takes long. A request that is too far ahead of its
// acknowledgements is paused, so nothing here grows without bound. A request may bring what another
// leader generated for it; it goes on as if it had been here all the time. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/sampler.h"
#include "engine/step.h"
#include "proto/messages.h"
#include "worker/batcher.h"

namespace worker {

struct LeaderOptions {
  int32_t token_count = 0;                  // ids below it have a piece and may be produced
  int requests_max = 256;                   // known at one time, waiting ones included
  size_t unacknowledged_max = 256;          // chunks of one request
  base::TimeNs resend_after = 500'000'000;  // without an acknowledgement
  SealedBlocks* sealed_blocks = nullptr;    // may be null; outlives the leader
};

/// A message with the trace id of the request it belongs to.
struct Traced {
  proto::Body body;
  std::string trace_id;
};

/// What is kept of requests.
struct Kept {
  size_t requests = 0;             // known, ended ones until they are acknowledged
  size_t unacknowledged_most = 0;  // chunks of one request
};

class Leader {
 public:
  /// `runner` must outlive the leader.
  Leader(engine::StepRunner& runner, LeaderOptions options);

  void on_generate(proto::GenerateRequest request, std::string trace_id, base::TimeNs now);
  void on_score(proto::ScoreRequest request, std::string trace_id, base::TimeNs now);
  void on_cancel(uint64_t request_id, base::TimeNs now);
  void on_ack(const proto::Ack& ack, base::TimeNs now);

  /// Re-sends what is due and runs at most one step. An error: the runner is unusable. Its requests
  /// hear nothing of it from here: the broker ends them, or has them go on in another group.
  base::Status tick(base::TimeNs now);

  /// Whoever asked is gone: forgets every request, frees its blocks, says nothing more of it.
  void forget_all();

  /// True if the next tick() would run a step.
  bool has_work() const;
  std::vector<Traced> take_outbox();
  /// Steps, columns and blocks; what only a clock can know is left at 0.
  proto::StatsReply stats() const;
  Kept kept() const;

 private:
  struct Request {
    bool scores = false;
    proto::GenerateRequest generate;  // prompt and generated moved into the batcher
    proto::ScoreRequest score;        // tokens moved into the batcher
    engine::SamplingParams sampling;
    int64_t prompt_tokens = 0, generated_tokens = 0, generated_max = 0;
    std::string trace_id;
    bool finished = false;
    uint64_t next_index = 0;
    std::deque<proto::Body> unacknowledged;  // up to next_index
    base::TimeNs waiting_since = 0;          // of the oldest one, or its last re-send
  };

  base::Status admit_generate(uint64_t id, Request& request, base::TimeNs now);
  base::Status admit_score(uint64_t id, Request& request);
  /// How `request` ends with `token` as the last generated one; kNone if it goes on.
  static proto::Finish finish_at(const Request& request, int32_t token);
  base::Status check_ids(const char* what, const std::vector<int32_t>& ids) const;
  bool has_room(uint64_t id) const;
  template <class Chunk>
  void refuse(Chunk chunk, const std::string& trace_id);
  Request* open(uint64_t id, std::string trace_id);
  void emit(Request& request, proto::Body chunk, base::TimeNs now);
  void finish(uint64_t id, proto::Finish how, base::Error error, base::TimeNs now);
  base::Status run_step(const engine::Step& step, base::TimeNs now);
  void on_part(const Part& part, const engine::StepOutput& output, base::TimeNs now);
  void on_generated(const Part& part, std::span<const float> logits, base::TimeNs now);
  void on_scored(const Part& part, const engine::StepOutput& output, base::TimeNs now);
  void resend(base::TimeNs now);

  engine::StepRunner& runner_;
  const LeaderOptions options_;
  const engine::RunnerShape shape_;
  Batcher batcher_;
  engine::Sampler sampler_;
  std::map<uint64_t, Request> requests_;
  std::vector<Traced> outbox_;
  proto::StatsReply stats_;
};

}  // namespace worker
