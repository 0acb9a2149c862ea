// A cluster for commands that ask one thing after the other: every call waits for its answer.
//
// A ClusterLoop with the waiting done here. Every wait also watches the signals and the workers, so
// Ctrl-C and a killed worker end any call with an error (kCancelled, kPeerLost); after that the
// cluster is of no use any more. Thread rule: the main thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cli/cluster_loop.h"

namespace cli {

/// What a request gave.
struct Generated {
  std::vector<int32_t> tokens;
  proto::Finish finish = proto::Finish::kNone;
  proto::Usage usage;
};
struct Scored {
  std::vector<float> log_probabilities;  // from first_scored on
  int top_count = 0;
  std::vector<int32_t> top_ids;   // [tokens][top_count]
  std::vector<float> top_logits;  // as top_ids
  std::vector<float> last_logits;
};

enum class Continue { kYes, kNo };

class LocalCluster {
 public:
  /// Returns when the model is loaded. `on_progress` gets bytes loaded and in all. Errors: anything
  /// that can be wrong with model, options or machine, in one sentence.
  static base::Result<std::unique_ptr<LocalCluster>> start(
      ClusterOptions options, const worker::BackendFactory& factory, SignalWatch& signals,
      base::Log& log, const std::function<void(uint64_t, uint64_t)>& on_progress);

  /// Returns after the last token; `on_tokens` may stop it early.
  base::Result<Generated> generate(
      proto::GenerateRequest request,
      const std::function<Continue(std::span<const int32_t>)>& on_tokens);
  /// Several at once. `on_tokens` gets the index of the request; once it says kNo all are ended.
  /// Returns after the last one's last chunk. Errors: also if one of them failed.
  base::Status generate_together(
      std::vector<proto::GenerateRequest> requests,
      const std::function<Continue(size_t, std::span<const int32_t>)>& on_tokens);
  /// `on_positions` gets how many positions are done; may be empty.
  base::Result<Scored> score(proto::ScoreRequest request,
                             const std::function<void(int64_t)>& on_positions);
  /// Of all ranks; the leader's first.
  base::Result<std::vector<proto::StatsReply>> stats();

  /// Of all requests so far; scored tokens count as prompt.
  const proto::Usage& usage() const { return usage_; }
  int ranks() const { return loop_->ranks(); }
  /// What rank `rank` said when it was ready.
  const proto::Ready& ready(int rank) const { return loop_->ready(rank); }
  const shm::Placement& placement() const { return loop_->placement(); }
  pid_t worker_pid(int rank) const { return loop_->worker_pid(rank); }
  /// Compute threads of all ranks, and those of them that take part in steps that only generate.
  int threads() const;
  int decode_threads() const;

  /// Waits for `descriptor` to be readable, with everything else going on. Errors as above.
  base::Status wait_for(int descriptor);

 private:
  LocalCluster(std::unique_ptr<ClusterLoop> loop, SignalWatch& signals, int decode_threads)
      : loop_(std::move(loop)), signals_(signals), decode_threads_(decode_threads) {}
  base::Status await_ready(const std::function<void(uint64_t, uint64_t)>& on_progress);
  base::Status pump(std::span<const int> descriptors);
  /// Pumps until `take` has taken an event.
  base::Status await_event(const std::function<bool(broker::Event&)>& take);

  const std::unique_ptr<ClusterLoop> loop_;
  SignalWatch& signals_;
  const int decode_threads_;  // of a rank; 0: all
  proto::Usage usage_;
};

}  // namespace cli
