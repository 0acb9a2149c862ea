// How busy the groups of a server are, and which of them should get the next request.
//
// The board is in memory: one entry a group, read from its Broker when it is asked for. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace broker {

struct GroupLoad {
  bool ready = false;
  bool full = false;   // takes no more requests
  bool held = false;   // some request must run alone: all others wait for it
  int requests = 0;    // under way or waiting
  int64_t tokens = 0;  // of those: prompts and what was generated so far
};

/// Of the groups that are ready and not full the one with the fewest requests, of those the one
/// with the fewest tokens, of those the first: who comes alone finds its prefix where it was. One
/// that is held is taken only if all are. Nothing: no group takes a request.
std::optional<size_t> least_loaded(std::span<const GroupLoad> board);

}  // namespace broker
