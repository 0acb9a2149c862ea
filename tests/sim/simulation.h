// One run of a simulated cluster, all of it decided by one seed.
//
// First faults and requests, then the faults stop: within a bounded time everything must have ended
// and the group must be ready, a request more must be served, and a shutdown must reach everybody.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/checker.h"
#include "tests/sim/plants.h"

namespace sim {

struct Outcome {
  std::optional<std::string> failure = {};  // the first violation
  std::string trace = {};                   // the last events, if it failed
  uint64_t hash = 0;                        // of all that happened
  uint64_t events = 0;
  Counts counts = {};
};

Outcome simulate(const Scenario& scenario, const Plant& plant = {});

}  // namespace sim
