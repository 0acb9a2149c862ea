// Bugs planted on purpose, at the seams of the state machines: what the checkers must find.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "broker/broker.h"
#include "engine/step.h"
#include "proto/envelope.h"
#include "tests/sim/random.h"

namespace sim {

/// Unset: nothing is changed there.
struct Plant {
  std::string name = {};
  /// Messages that a state machine sends, as if it had a bug.
  std::function<void(std::vector<proto::Message>&)> outbox = {};
  /// What travels instead of a message.
  std::function<std::vector<proto::Envelope>(proto::Envelope)> wire = {};
  /// What the model computes instead of a step.
  std::function<void(engine::Step&)> step = {};
  /// What an index of sealed blocks finds.
  std::function<void(std::vector<int32_t>&)> sealed = {};
  /// What clients see instead of these events.
  std::function<void(std::vector<broker::Event>&)> events = {};
};

/// A fresh set: each draws from the seed and remembers what it saw.
std::vector<Plant> planted_bugs(uint64_t seed);
/// Those of them that have to do with crashes and what outlives them (plants_outliving.cc).
std::vector<Plant> planted_outliving_bugs();

}  // namespace sim
