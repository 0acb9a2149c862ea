// What a Broker tells whoever runs it: answers, and what becomes of the group.
//
// Plain values; Broker::take_events() gives them in the order in which they happened. The last
// event of a request has a finish other than kNone. Thread rule: values.
#pragma once

#include <variant>
#include <vector>

#include "base/result.h"
#include "proto/messages.h"

namespace broker {

struct LoadEvent {};        // see Broker::rank()
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
/// All ranks have told where their memory lies.
struct PlacementEvent {
  std::vector<proto::PlacementReply> ranks;  // by rank
};
using Event = std::variant<LoadEvent, GroupReadyEvent, GroupLostEvent, TokenEvent, ScoreEvent,
                           StatsEvent, PlacementEvent>;

}  // namespace broker
