// What must be true of a cluster whatever happens to it; checked while it runs.
//
// Requests are seen as a client sees them: each token is compared with the oracle's at once, so an
// answer that was ended early is a prefix of the right one. The first violation is kept as a
// sentence; what comes after it is not looked at. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "broker/broker.h"
#include "proto/envelope.h"
#include "tests/sim/oracle.h"
#include "tests/sim/scenario.h"
#include "tests/sim/suspicion.h"
#include "worker/leader.h"

namespace sim {

/// How often what happened; so that a test can tell whether it tests anything.
struct Counts {
  uint64_t accepted = 0, refused = 0, finished = 0, cancelled = 0, broken = 0, orphaned = 0;
  uint64_t tokens = 0, groups_ready = 0, groups_lost = 0, stats = 0;
  uint64_t adopted = 0;              // groups
  uint64_t replayed = 0;             // once for each request and loss that it lived through
  uint64_t given_up = 0, alone = 0;  // requests; sent while all others waited
};

class Checker {
 public:
  /// With several groups behind a router one checker sees the requests, and one for each group its
  /// broker, which knows them by other ids.
  enum class Sees { kBoth, kRequests, kBroker };
  explicit Checker(const Scenario& scenario, Sees sees = Sees::kBoth);

  const std::optional<std::string>& failure() const { return failure_; }
  void fail(std::string sentence);
  void expect(bool fact, const char* sentence) {
    if (!fact) fail(sentence);
  }

  // Requests.
  void on_accepted(uint64_t id, proto::GenerateRequest request);
  void on_accepted(uint64_t id, proto::ScoreRequest request);
  void on_cancel(uint64_t id);
  void on_event(const broker::Event& event, const broker::Broker& broker);
  /// The broker died: what was open ends there for its clients.
  void on_broker_lost();
  /// From now on groups may break in any scenario.
  void on_crash_to_come() { groups_break_ = true; }
  /// From now on workers end because they were told to.
  void on_shut_down() { stopping_ = true; }
  bool is_stopping() const { return stopping_; }
  bool is_open(uint64_t id) const { return open_.contains(id); }
  size_t open_requests() const { return open_.size(); }
  /// Chunks that have come so far.
  uint64_t chunks(uint64_t id) const { return open_.at(id).next_index; }

  // Messages and memory.
  void on_sent(const proto::Envelope& envelope);
  /// The broker's present one, before anything is told that happened in it.
  void on_epoch(uint64_t epoch) { epoch_ = epoch; }
  void on_leader(const worker::Leader& leader);
  void on_broker(const broker::Broker& broker);

  Counts counts;

 private:
  struct Open {
    uint64_t next_index = 0;
    bool cancelled = false;
    std::optional<base::Code> doomed;
    size_t tokens = 0;  // that came
    Suspicion suspicion;
    uint64_t sent_in = 0;                      // epoch in which it was sent last
    std::unique_ptr<GenerateOracle> generate;  // one of both
    std::unique_ptr<proto::ScoreRequest> score;
    int64_t positions = 0;  // that scores have come for
    ScoreAnswer scored;     // so far
  };

  Open* expect_chunk(uint64_t id, uint64_t index);
  void on_group_lost(const base::Error& error);
  void on_request_sent(uint64_t id, uint64_t epoch);
  void on_tokens(const proto::TokenChunk& chunk);
  void on_score(const proto::ScoreChunk& chunk);
  void check_scores(const Open& open, bool complete);
  void check_usage(const Open& open, const proto::TokenChunk& chunk);
  void end(uint64_t id, proto::Finish finish, const base::Error& error);
  void check_error(const Open& open, const base::Error& error);

  const Scenario& scenario_;
  const Sees sees_;
  const OracleModel model_;
  bool stopping_ = false, groups_break_ = false;
  std::optional<std::string> failure_;
  uint64_t epoch_ = 0;
  std::set<std::string> loaded_;  // nodes whose last hello named a group
  std::map<uint64_t, Open> open_;
  std::set<uint64_t> ended_;                                        // of this broker
  std::map<std::pair<std::string, uint64_t>, uint64_t> sequences_;  // last, of each incarnation
  std::map<uint64_t, std::set<std::string>> ready_said_;            // by epoch: nodes
};

}  // namespace sim
