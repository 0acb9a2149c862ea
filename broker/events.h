// What a Broker tells whoever runs it: answers, and what becomes of the group.
//
// Plain values; Broker::take_events() gives them in the order in which they happened. The last
// event of a request has a finish other than kNone. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "proto/messages.h"

namespace broker {

struct LoadEvent {};  // see Broker::rank()
/// A worker of an earlier broker that is to be adopted has not loaded yet: it joins when it has.
struct AdoptLoadEvent {
  std::string peer;
  uint64_t bytes_done = 0, bytes_total = 0;
};
struct GroupReadyEvent {};  // requests are accepted from now on
/// No longer. Each request that ends with the group has had its last event before this one. Without
/// BrokerOptions::replay that is every one, with this error; with it generations go on.
struct GroupLostEvent {
  base::Error error;
};
struct TokenEvent {
  proto::TokenChunk chunk;
};
struct ScoreEvent {
  proto::ScoreChunk chunk;
};
struct StatsEvent {
  proto::StatsReply stats;
};
/// How the steps of a rank that does not lead went.
struct RankStatsEvent {
  int rank = 0;
  proto::StatsReply stats;
};
/// All ranks have told where their memory lies.
struct PlacementEvent {
  std::vector<proto::PlacementReply> ranks;  // by rank
};
using Event = std::variant<LoadEvent, AdoptLoadEvent, GroupReadyEvent, GroupLostEvent, TokenEvent,
                           ScoreEvent, StatsEvent, RankStatsEvent, PlacementEvent>;

}  // namespace broker
