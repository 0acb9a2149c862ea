// The clients of a simulation: requests of random shapes, cancelling, and things that are wrong.
//
// Thread rule: one thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tests/sim/cluster.h"

namespace sim {

class Clients {
 public:
  Clients(const World& world, Cluster& cluster);

  base::TimeNs next_event() const;
  void run_due();
  bool done() const { return left_ == 0; }
  /// Submits one more request that is right and stays; false if it was refused.
  bool probe(int64_t max_tokens = 20);
  /// Another one, as long as can be, and cancels it at once.
  bool probe_cancel();

 private:
  /// What a client still does to its request.
  struct Plan {
    std::optional<base::TimeNs> cancel_at;
    std::optional<uint64_t> unread_max;  // chunks; it reads none of them and is thrown out then
  };

  void submit();
  template <class Request>
  void ask(Request request, bool wrong);
  proto::GenerateRequest draw_generate();
  proto::ScoreRequest draw_score();
  std::vector<int32_t> draw_tokens(int64_t most);
  void cancel(uint64_t id);

  const World& world_;
  Cluster& cluster_;
  Random random_;
  int left_;
  base::TimeNs submit_at_ = 0;
  std::map<uint64_t, Plan> plans_;
  std::optional<uint64_t> asked_;  // the last request that was accepted
};

}  // namespace sim
