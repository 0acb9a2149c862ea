// Membership of one group of workers, and the requests that are under way in it.
//
// A state machine: messages and time go in, messages and events come out. It reads no clock, no
// socket and no random source, and knows nothing of weights, kernels or NUMA nodes. Of every live
// request it keeps the prompt and the tokens so far; each token reaches the events exactly once and
// in order, whatever the network repeats or loses. Losing one rank breaks the group: the other
// ranks are told to stop, and the next hellos form a group under the next plan epoch. The requests
// end with an error, or, with `replay`, the generations wait and go on in the next group from the
// token they had come to; one that may be what brings workers down runs alone first (broker/blame).
// A worker belongs to one epoch of one broker: whoever speaks from another one is told to stop
// until it does. With `adopt` workers of an earlier broker are asked to join instead, until a group
// is ready or given up: all of them or none. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "broker/events.h"
#include "broker/live_request.h"
#include "broker/load_board.h"
#include "broker/member.h"
#include "proto/envelope.h"
#include "proto/messages.h"

namespace broker {

struct BrokerOptions {
  std::string node_id = "broker";
  uint64_t incarnation = 0;  // never used twice; no two brokers have an epoch in common
  int rank_count = 1;
  std::string model_fingerprint = {};  // that every worker must name
  int requests_max = 256;
  bool replay = false;  // generations outlive their group
  bool adopt = false;   // the first group is made of workers that have loaded for an earlier broker
  base::TimeNs repeat_after = 1'000'000'000;     // without an answer; doubled each time
  uint64_t acknowledge_every = 16;               // chunks
  base::TimeNs acknowledge_after = 100'000'000;  // even if fewer came
};

class Broker {
 public:
  explicit Broker(BrokerOptions options);

  void on_message(const std::string& peer, const proto::Message& message, base::TimeNs now);
  void on_tick(base::TimeNs now);
  /// A process ended or a message could not be delivered; `what` is a sentence for the user.
  void on_peer_lost(const std::string& peer, const base::Error& what);

  bool ready() const;
  uint64_t plan_epoch() const { return plan_epoch_; }
  /// nullptr while nobody has that rank.
  const RankInfo* rank(int rank) const;

  /// Starts a request and returns its id; the request_id of the argument is ignored. Errors:
  /// kUnavailable (no group, too many requests), kInvalidArgument (what no worker could read).
  base::Result<uint64_t> generate(proto::GenerateRequest request, base::TimeNs now);
  base::Result<uint64_t> score(proto::ScoreRequest request, base::TimeNs now);
  /// Asks for an early end; the last event of the request says how it finished. Unknown: ignored.
  void cancel(uint64_t request_id, base::TimeNs now);
  /// A StatsEvent follows. Ignored while no group is ready.
  void request_stats();
  /// A PlacementEvent follows when all ranks have answered. Ignored while no group is ready; begins
  /// anew if one is under way.
  void request_placement();
  /// Ends all requests with this error: there will be no group for them.
  void end_all(const base::Error& error);
  /// The workers of an earlier broker do not come: those that did are told to stop, and the next
  /// hellos are of workers that load. Nothing happens if the group is ready.
  void give_up_adoption(std::string_view reason);
  /// Whether give_up_adoption() would do something.
  bool adopting() const { return adopting_; }
  /// Ends all requests with an error and tells every worker to stop, also those that say hello from
  /// now on.
  void shut_down(std::string_view reason);

  /// Prompt and tokens so far; empty if the request is unknown or has ended.
  std::vector<int32_t> tokens(uint64_t request_id) const;
  int live_requests() const { return static_cast<int>(live_.size()); }
  GroupLoad load() const;
  /// Whether it is a generation that waits for a group and need not run alone.
  bool may_move(uint64_t request_id) const;
  /// Forgets it without an event: it goes on elsewhere. REQUIRES: may_move().
  LiveRequest release(uint64_t request_id);
  /// Goes on with what another broker released, under the id returned. Errors: kUnavailable.
  base::Result<uint64_t> go_on(LiveRequest& request, base::TimeNs now);

  std::vector<Outgoing> take_outbox();
  std::vector<Event> take_events();

 private:
  using Live = LiveRequest;

  void on_hello(const std::string& peer, const proto::Header& header, const proto::Hello& hello);
  std::string refusal(const proto::Header& header, const proto::Hello& hello) const;
  /// Why somebody whom refusal() lets in has to stop all the same; empty: it is welcome.
  std::string oddness(const proto::Header& header, const proto::Hello& hello) const;
  void on_foreign_epoch(const std::string& peer, const proto::Envelope& envelope);
  void on_ready(Member& member, const proto::Ready& ready, base::TimeNs now);
  /// The member that sent this, nullptr if it is not, or no longer, one of ours; answers then.
  Member* member_of(const std::string& peer, const proto::Envelope& envelope);
  void on_placement(int rank, proto::PlacementReply reply);
  void on_token_chunk(proto::TokenChunk chunk, base::TimeNs now);
  void on_score_chunk(proto::ScoreChunk chunk, base::TimeNs now);
  /// The live request if this is its next chunk; answers everything else.
  Live* expect(uint64_t request_id, uint64_t index, proto::Finish finish);
  /// It has arrived and makes sense: counts, acknowledges, ends.
  void take_chunk(uint64_t request_id, proto::Finish finish, base::TimeNs now);
  base::Status check_open() const;
  /// Whether the leader could read and compute it: `what` are its tokens. Errors: kInvalidArgument.
  base::Status check_tokens(std::string_view what, const std::vector<int32_t>& tokens) const;
  base::Status check(const proto::GenerateRequest& request) const;
  base::Status check(const proto::ScoreRequest& request) const;
  void start(proto::Body request, uint64_t id, std::vector<int32_t> tokens, base::TimeNs now);
  /// Sends the leader what waits to be sent: everything, or only what must run alone.
  void send_waiting(base::TimeNs now);
  void send_request(Live& live, base::TimeNs now);
  void acknowledge(uint64_t request_id, Live& live);
  void dismiss(int rank);
  void dismiss_all(const std::string& reason);
  void lose_group(const base::Error& error);
  /// After the loss of a group: each request ends, or waits for the next one.
  void keep_requests(const base::Error& error);
  /// The last event of a request that does not outlive its group; nothing: it waits.
  static std::optional<Event> end_with_group(uint64_t id, Live& live, const base::Error& error);
  int rank_of(const std::string& peer) const;
  void send(const std::string& peer, proto::Body body, const std::string& trace_id = {});
  void send_in(uint64_t epoch, const std::string& peer, proto::Body body,
               const std::string& trace_id);
  void send_leader(proto::Body body, const std::string& trace_id = {});

  const BrokerOptions options_;
  uint64_t plan_epoch_;
  uint64_t sequence_ = 0;
  uint64_t last_request_id_ = 0;
  std::map<int, Member> members_;           // by rank
  std::map<std::string, uint64_t> oldest_;  // incarnation of each node that may still join
  std::optional<std::string> closing_;      // why, after shut_down()
  bool adopting_;
  std::map<int, proto::PlacementReply> placement_;  // by rank, of those that were asked
  std::map<uint64_t, Live> live_;
  std::vector<Outgoing> outbox_;
  std::vector<Event> events_;
};

}  // namespace broker
